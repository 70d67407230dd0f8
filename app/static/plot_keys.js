// Plotly draws its buttons as shapes that only a pointer reaches: here they come under the Tab key, and Enter and Space
// press them. Plotly draws them anew whenever it likes, so whatever appears is looked through.

export default function ({ parentElement }) {
  parentElement.endKeys?.(); // drawn anew
  const reach = () => {
    for (const button of document.querySelectorAll(".updatemenu-button:not([tabindex])")) {
      button.setAttribute("tabindex", "0");
      button.setAttribute("role", "button");
      button.setAttribute("aria-label", button.textContent.trim());
    }
  };
  const press = (event) => {
    const button = event.target.closest?.(".updatemenu-button");
    if (!button || !["Enter", " "].includes(event.key)) return;
    event.preventDefault();
    button.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  };
  const watch = new MutationObserver(reach);
  watch.observe(document.body, { childList: true, subtree: true });
  document.addEventListener("keydown", press);
  reach();
  parentElement.endKeys = () => {
    watch.disconnect();
    document.removeEventListener("keydown", press);
  };
  return parentElement.endKeys;
}

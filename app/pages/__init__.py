"""The pages, one file each, with a `render()` that reads the state and draws. Pages never import each other."""

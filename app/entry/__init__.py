"""Where the script lies that Streamlit runs: apart from pages/, which Streamlit would take for scripts of its own."""

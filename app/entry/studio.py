"""The script that Streamlit runs for every visitor."""

from pattern_studio_app.router import main

main()

"""Pattern Studio in the browser. Installed as `pattern_studio_app`; the folder of the repository is `app`."""

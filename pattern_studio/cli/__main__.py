"""`python -m pattern_studio.cli`: the same as `pattern-studio`."""

from . import main

raise SystemExit(main())

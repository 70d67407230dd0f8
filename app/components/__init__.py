"""Parts of pages: each draws one thing from the state and sends events back."""

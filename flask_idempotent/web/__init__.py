"""What meets Flask: tokens, pages, answers. Never a store, never the extension."""

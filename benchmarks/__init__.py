"""What a protected request costs beside a bare one, and beside one that is guarded by hand."""

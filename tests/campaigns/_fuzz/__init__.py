"""What the campaign of random requests is made of."""

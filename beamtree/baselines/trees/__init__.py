"""Systems that search a tree by beam: those the method is compared with, and its published variants."""

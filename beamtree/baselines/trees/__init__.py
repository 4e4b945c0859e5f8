"""Systems that search a tree by beam: those the method is compared with, its published variants, and the default."""

"""From a log to a model: where the parts of training meet."""

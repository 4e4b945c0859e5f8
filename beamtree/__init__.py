"""beamtree: a deep retriever that learns its tree index. Names are imported when first used."""

"""`DeepTreeRetriever`: fit on a log, recommend, save, load. Importing it loads no torch; fitting does."""

from beamtree.recommender.retriever import DeepTreeRetriever, load

__all__ = ["DeepTreeRetriever", "load"]

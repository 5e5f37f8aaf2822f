"""The geometry of a data set: distances, neighbours, embeddings."""

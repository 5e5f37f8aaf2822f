"""Programmes with a free measure: barycenters and mixture coordinates."""

"""
Topics of texts
===============

From texts to topics: scikit-learn's ``CountVectorizer`` counts words, word vectors give the cost between words, and
Wasserstein NMF finds topics. The texts are docstrings of SciPy, which are there wherever gibbsot is. Compared with
scikit-learn's NMF and latent Dirichlet allocation are the exact transport cost of documents that were held out, and the
coherence of the topics in these.
"""

import importlib
import inspect
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import NMF, LatentDirichletAllocation, TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

import gibbsot
from gibbsot.topics import coherence, topic_table

# %%
# Texts and counts
# ----------------
# A document is the docstring of a function or class, at most 25 of each module. Every fourth is held out.

texts = []
for name in (
    "cluster.hierarchy",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "stats",
):
    module = importlib.import_module(f"scipy.{name}")
    found = (inspect.getdoc(getattr(module, member)) or "" for member in module.__all__)
    texts += [text for text in found if len(text) > 1500][:25]
vectorizer = CountVectorizer(
    token_pattern=r"[a-z]{4,}", stop_words="english", min_df=6, max_df=0.3, max_features=400, dtype=float
)
counts = vectorizer.fit_transform(texts).toarray()
words = vectorizer.get_feature_names_out()
held_out = np.arange(len(counts)) % 4 == 3
train, test = counts[~held_out], counts[held_out]
print(f"{len(train)} documents, {len(test)} held out, {len(words)} words")

# %%
# Word vectors
# ------------
# Words that occur in the same documents get vectors near each other: singular vectors of their positive pointwise
# mutual information. Vectors from anywhere else will do too.

seen = (train > 0).astype(float)
together, alone = seen.T @ seen, np.maximum(seen.sum(axis=0), 1)
information = np.log(np.maximum(together * len(seen) / np.outer(alone, alone), 1))
vectors = normalize(TruncatedSVD(30, random_state=0).fit_transform(information))
cost = gibbsot.PointCost(vectors, metric="euclidean")

# %%
# Three models
# ------------

K = 6
models = {
    "NMF": NMF(K, init="nndsvda", max_iter=500, random_state=0),
    "LDA": LatentDirichletAllocation(K, max_iter=30, random_state=0),
    "Wasserstein NMF": gibbsot.WassersteinNMF(K, cost=cost, max_epochs=30, temperature=0.003, random_state=0),
}
costs = {}
for name, model in models.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train if name == "LDA" else normalize(train, "l1"))
    topics = normalize(model.components_, "l1")
    memberships = gibbsot.mixture_coordinates(test, topics, cost)  # those of least transport cost, for all models
    costs[name] = gibbsot.solve_batch(memberships @ topics, test, cost, normalize=True).value.mean()
    print(f"{name}: cost held out {costs[name]:.3f}, coherence held out {coherence(model, test).mean():+.3f}")

# %%
# A table of the topics, with their shares of the documents:

topic_table(models["Wasserstein NMF"], words, n_words=8)

# %%
# The weights of the heaviest words:

figure, axes = plt.subplots(2, 3, figsize=(9, 4.5), layout="constrained")
for k, (ax, topic) in enumerate(zip(axes.flat, topic_table(models["Wasserstein NMF"], words, n_words=7), strict=True)):
    ax.barh(topic.words, topic.weights, color=gibbsot.plots.PALE_PINK)
    ax.invert_yaxis()
    ax.set_title(f"topic {k}: {topic.share:.0%}", fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

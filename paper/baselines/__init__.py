"""Methods that the paper compares with: Bregman ADMM, smoothed Wasserstein NMF, and scikit-learn's NMF."""

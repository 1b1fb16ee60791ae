"""Before: scikit-learn with cross-validation. No training here is private, and nothing says so."""

import optuna
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

x, y = load_breast_cancer(return_X_y=True)


def make_model(c):
    return make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=500))


def objective(trial):
    c = trial.suggest_float("c", 1e-4, 1e2, log=True)
    return cross_val_score(make_model(c), x, y, cv=5).mean()


study = optuna.create_study(direction="maximize")
study.optimize(objective, n_trials=15)
model = make_model(**study.best_params).fit(x, y)
print(study.best_params, model.score(x, y))

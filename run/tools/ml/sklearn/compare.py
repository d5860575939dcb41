"""Times scikit-learn on the arrays that package compare wrote.

usage: compare.py FOLDER [full]; prints one JSON object of seconds and areas.
"""
import json
import sys
import time

import numpy as np
import sklearn
from sklearn.ensemble import IsolationForest, RandomForestRegressor
from sklearn.metrics import roc_auc_score

folder, full = sys.argv[1], "full" in sys.argv[2:]
result = {"version": sklearn.__version__}


def array(name, columns=1):
    values = np.fromfile(f"{folder}/{name}", dtype="<f8")
    return values.reshape(-1, columns) if columns > 1 else values


def timed(name, work):
    began = time.perf_counter()
    made = work()
    result[name] = time.perf_counter() - began
    return made


def isolation(trees, sample, contamination="auto"):
    return IsolationForest(n_estimators=trees, max_samples=sample, contamination=contamination, random_state=1, n_jobs=2)


def regression(leaf, trees=100):
    return RandomForestRegressor(n_estimators=trees, min_samples_leaf=leaf, max_features=1 / 3, random_state=1, n_jobs=2)


few, many = array("few", 15), array("many", 15)
forest = timed("fit", lambda: isolation(100, 256, 0.05).fit(few))
timed("score", lambda: forest.score_samples(many))
one = few[17:18]
forest.n_jobs = 1
timed("ten_rows", lambda: [forest.score_samples(one) for _ in range(10)])
result["one"] = result.pop("ten_rows") / 10

site, labels = array("site", 15), array("labels") > 0
for name, trees, sample in (("auc_100x256", 100, 256), ("auc_200x1024", 200, 1024)):
    result[name] = roc_auc_score(labels, -isolation(trees, sample).fit(site).score_samples(site))

rows, targets = array("rows", 29), array("targets")
timed("regression", lambda: regression(20).fit(rows, targets))


def run():
    grown = isolation(200, 1024, 0.05).fit(few)
    part = rows[: len(few) * 3 // 4], targets[: len(few) * 3 // 4]
    for _ in range(2):
        regression(20, 60).fit(*part).predict(rows[: len(few) // 4])
    return grown


timed("run", run)
if full:
    rows, targets = array("deep_rows", 22), array("deep_targets")
    timed("deep", lambda: regression(1).fit(rows, targets))
print(json.dumps(result))

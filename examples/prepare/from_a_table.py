import optuna
import pandas

import optuna_dp as odp

frame = pandas.read_csv("patients.csv")
schema = odp.Schema(
    age=(20, 80), income=(0, 80_000), admitted=odp.Date("2015-01-01", "2026-01-01"),
    sex=["F", "M"], ward=["surgery", "medicine", "burns"],
    died=["no", "yes"], target="died", unit="patient", most=2,
)  # fmt: skip
plan = odp.plan_budget(epsilon=1.0, records=4000, epochs=10, pilots=0, schema=schema)
trainings = []


def objective(trial):
    model = odp.SoftmaxRegression(schema.width, schema.outputs)
    trainings.append(odp.train(odp.start_run(trial), model, schema.encode(frame)))
    return trainings[-1].score


study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
study.optimize(objective, callbacks=[odp.PrivacyCallback()])
print(odp.release(study).statement())

new_rows = frame.drop(columns=["died", "patient"]).head()  # As rows come that are to be predicted.
print(trainings[-1].predict(new_rows))

"""A private search over a function of a data set: its noisy mean in a chosen direction."""

import optuna
import optunahub

import optuna_dp as odp

N = 1000
values = [(i % 10) / 10 for i in range(N)]  # the private records, in [0, 1)
run = odp.scoring.score_event(noise_multiplier=50.0)


def objective(trial: optuna.Trial) -> float:
    threshold = trial.suggest_float("threshold", 0.0, 1.0)
    fits = [abs(value - threshold) < 0.2 for value in values]
    return odp.scoring.private_accuracy(fits, size=N, noise_multiplier=50.0)


def main() -> None:
    module = optunahub.load_module("samplers/rand_tune")
    sampler = module.RandTuneSampler(trials=odp.Geometric(mean=10), run=run)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study, vouched="private_accuracy adds the noise")
    print(release.params, release.value)
    print(release.guarantee.epsilon(delta=1e-5))


if __name__ == "__main__":
    main()

"""``optuna-dp recover``, ``optuna-dp release`` and ``optuna-dp verify``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from optuna_dp.cli.common import AsJson, clear_errors, option
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.study.recovery_words import hidden_password

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study

    from optuna_dp.releasing.release import Release
    from optuna_dp.study.torn_journals import MendedJournal

Storage = Annotated[
    str,
    typer.Argument(
        metavar="STORAGE", help="Optuna storage URL of the curator's study, or a journal file."
    ),
]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="Name of the study.")]

_WHAT = "Give an Optuna storage URL or the path of a journal file."


def recover(
    storage: Storage,
    study: StudyName,
    fail: Annotated[
        list[int] | None,
        option("NUMBER", "Number of a trial whose worker has died. Repeat for more."),
    ] = None,
    mend: Annotated[
        bool,
        typer.Option(
            "--mend",
            help="Drop the torn lines of a journal file, as a full disk leaves them. Keeps a copy "
            "of the file. End all workers first.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the open trials of a study, and mark those of dead workers as failed.

    Without --fail and --mend nothing is changed. A run marked as failed counts as a run and is not
    repeated. Mark it only if its worker is dead, not because the run takes long.

    Example: optuna-dp recover sqlite:///curator.db digits --fail 12
    """
    with clear_errors(recover):
        from optuna_dp.study.recovery import recover as recover_study  # Lazy: start-up time.

        repair = _mended(storage) if mend else None
        failures = sorted(set(fail or ()))
        open_trials = recover_study(load_study(storage, study), fail=failures)
    if as_json:
        record: dict[str, object] = {
            "marked_as_failed": failures,
            "open": [dataclasses.asdict(t) for t in open_trials],
        }
        if repair is not None:
            record["mended"] = dataclasses.asdict(repair)
        typer.echo(json.dumps(record, indent=2, default=str))
        return
    if repair is not None and repair.copy is None:
        typer.echo(f"All {repair.lines} lines of the journal are whole. Nothing was mended.")
    elif repair is not None:
        for lines, what in (
            (repair.dropped, "Dropped {} torn of {} lines"),
            (repair.cut, "Kept the whole entry at the end of {} torn of {} lines"),
        ):
            if lines:
                numbers = ", ".join(map(str, lines))
                typer.echo(f"{what.format(len(lines), repair.lines)}: {numbers}.")
        typer.echo(f"The file as it was: {repair.copy}")
    if failures:
        typer.echo(f"Marked as failed: {', '.join(map(str, failures))}.")
    for trial in open_trials:
        since = "" if trial.started is None else f" since {trial.started:%Y-%m-%d %H:%M:%S}"
        status = (
            "others wait for its plan"
            if trial.leads
            else "waiting, nothing done yet; --fail uses up its run"
        )
        note = f" ({status})" if trial.leads or trial.did_nothing else ""
        typer.echo(f"trial {trial.number}: open{since}{note}")
    typer.echo(
        "If a worker has died, give its trial's number to --fail. Then start the worker again."
        if open_trials
        else "No trial is open."
    )


def release(
    storage: Storage,
    study: StudyName,
    as_json: AsJson = False,
    publish_to: Annotated[
        str | None,
        option(
            "URL", "Also publish to this new storage (sqlite:///NEW_FILE): a study safe to show."
        ),
    ] = None,
    publish_as: Annotated[
        str | None, option("NAME", "Name of the published study (default: release).")
    ] = None,
    failures: Annotated[
        str | None, option("chance|lost", "Why so many runs in a row failed, if release asks.")
    ] = None,
    vouched: Annotated[
        str | None,
        option("WORDS", "How you know that runs spent what is charged, if release asks."),
    ] = None,
    sign: Annotated[
        str | None, option("KEY", "Sign the JSON with this file: an Ed25519 private key.")
    ] = None,
) -> None:
    """Release the result of a finished study.

    Prints the chosen hyperparameters, the score and the privacy statement. What a run costs stands
    in the study's plan, where the sampler put it (run=).

    Example: optuna-dp release sqlite:///curator.db digits --json > release.json
    """
    with clear_errors(release, storage="--publish-to", study_name="--publish-as"):
        # Lazy: start-up time.
        from optuna_dp.releasing.make_release import release as release_study
        from optuna_dp.releasing.publishing import publish

        if sign is not None and not as_json:
            raise InvalidArgumentError(
                "--sign", sign, problem="it signs the JSON of a release", fix="Add --json."
            )
        if publish_as is not None and publish_to is None:
            raise InvalidArgumentError(
                "--publish-as",
                publish_as,
                problem="it needs --publish-to",
                fix="Name the storage too.",
            )
        curators_study = load_study(storage, study)
        result = release_study(curators_study, failures=cast(Any, failures), vouched=vouched)
        signed = None if sign is None else _signed(result, curators_study, sign)
        if publish_to is not None:
            # Not by the curator's own name for it, which may tell what was tried.
            publish(result, publish_to, publish_as or "release")
    if as_json:
        typer.echo(json.dumps(signed or result.to_json(), indent=2, sort_keys=True))
        return
    if result.params is None:
        typer.echo("No run succeeded, so nothing was chosen.")
    score = {} if result.value is None else {"score": result.value}
    for name, value in {**score, **(result.params or {}), **result.attributes}.items():
        typer.echo(f"{name}: {value!r}")
    typer.echo(f"\n{result.statement()}")


def _signed(release: Release, study: Study, key: str) -> dict[str, Any]:
    """Returns the JSON of a release with a signature; asks for the key's password, if any."""
    from optuna_dp.releasing.signature import sign  # start-up time

    try:
        return sign(release, study, key)
    except InvalidArgumentError as error:
        if error.argument != "password":
            raise
    password = typer.prompt(f"Password of {key}", hide_input=True, err=True)
    return sign(release, study, key, password=password)


def verify(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The JSON of a release or of its statement.")
    ],
    artifact: Annotated[str | None, option("FILE", "The file of the released model.")] = None,
    most: Annotated[
        int | None,
        option(
            "N", "What if one person may have N records? Says the guarantee for such a person."
        ),
    ] = None,
    key: Annotated[
        str | None, option("KEY", "The signer's public key: who signed FILE, and is it unchanged?")
    ] = None,
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="OTHER",
            help="Another release of the same records: says what both cost together. May be "
            "given several times.",
        ),
    ] = None,
    time_limit: Annotated[float, option("SECONDS", "How long the computing may take.")] = 300.0,
    statement: Annotated[
        bool,
        typer.Option("--statement", help="Print the statement instead, made from FILE alone."),
    ] = False,
    questions: Annotated[
        bool,
        typer.Option(
            "--questions", help="Print the questions to ask the owner of the data instead."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a release: compute its guarantee and its digest again from its JSON.

    Needs neither the study nor the data. Says first whether everything agrees, then what could not
    be checked, and what remains to be believed. With --statement it prints the statement itself,
    and with --questions a sheet of questions to the owner, if everything agrees. Exit code 0:
    everything agrees; 1: something differs; 2: FILE is not a release, or the time limit was too
    short; 3: what could be compared agrees, and the rest was made by another version.

    Example: optuna-dp verify release.json
    """
    from optuna_dp.releasing.verification import verify as check  # start-up time

    pages = [
        name
        for name, is_asked in (("--statement", statement), ("--questions", questions))
        if is_asked
    ]
    with clear_errors(
        verify,
        path_or_json="FILE",
        time_limit="--time-limit",
        most="--most",
        others="--with",
    ):
        if len(pages) > 1 or (pages and as_json):
            raise InvalidArgumentError(
                pages[0],
                True,
                problem="it prints a page to read, and nothing else",
                fix=f"Leave it out, or {pages[1] if len(pages) > 1 else '--json'}.",
            )
        verification = check(
            file,
            artifact=artifact,
            most=most,
            key=key,
            others=others or (),
            time_limit=time_limit,
        )
    report = json.dumps(verification.to_json(), indent=2) if as_json else str(verification)
    if verification.ok and pages:
        report = verification.statement if statement else verification.questions
    elif pages:
        report = f"{pages[0]} prints nothing, because the file does not agree.\n{report}"
    typer.echo(report)
    agreed = 3 if verification.of_another_version else 0
    raise typer.Exit(code=agreed if verification.ok else 1)


def _mended(storage: str) -> MendedJournal:
    """Mends the file of a journal, and says in one line what keeps it from that."""
    from optuna_dp.study.torn_journals import mend_journal  # Lazy: start-up time.

    if "://" in storage:
        raise InvalidArgumentError(
            "--mend",
            hidden_password(storage),
            problem="only the file of a journal has lines that can be torn",
        )
    _check_file(Path(storage), is_sqlite=False)
    try:
        return mend_journal(storage)
    except OSError as error:
        fix = "Free some disk space first: a copy of the file is kept."
        reason = f"the file cannot be copied and written ({error.strerror or error})"
        raise InvalidArgumentError("STORAGE", storage, problem=reason, fix=fix) from error


def load_study(storage: str, study_name: str) -> Study:
    """Loads a study from a storage URL or the file of a journal; never creates a storage.

    Raises:
        InvalidArgumentError: If there is no such storage or study.
    """
    import optuna  # Lazy: start-up time.

    try:
        backend = _open(storage)
        names = sorted(optuna.get_all_study_names(backend))
        if study_name not in names:
            has = f"It has: {', '.join(map(repr, names)) or 'none'}."
            raise InvalidArgumentError(
                "STUDY", study_name, problem="the storage has no such study", fix=has
            )
        return optuna.load_study(study_name=study_name, storage=backend)
    except InvalidArgumentError:
        raise
    except Exception as error:  # drivers, databases and damaged files raise what they like
        # Lazy: start-up time.
        from optuna_dp.study.torn_journals import torn_lines

        content = b"" if "://" in storage else Path(storage).read_bytes()
        torn = torn_lines(content)
        if 0 < len(torn) < len(content.splitlines()):
            raise InvalidArgumentError(
                "STORAGE",
                storage,
                problem=f"{len(torn)} of its lines are torn, the first is line {torn[0]}",
                fix="End all workers, free some disk space, and drop them: optuna-dp recover "
                f"{storage} {study_name} --mend",
            ) from error
        # Optuna's errors about a storage have the driver's as their cause.
        text = str(error.__cause__ or error).strip() or type(error).__name__
        line = text.splitlines()[0].rstrip(". ")
        raise InvalidArgumentError(
            "STORAGE", hidden_password(storage), problem=f"it cannot be read ({line})", fix=_WHAT
        ) from error


def _open(storage: str) -> BaseStorage:
    """Returns the storage; makes neither a file nor tables."""
    # Lazy: start-up time.
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy.engine import make_url

    if "://" not in storage:
        _check_file(Path(storage), is_sqlite=False)
        return JournalStorage(JournalFileBackend(storage))
    url = make_url(storage)
    if url.get_backend_name() == "sqlite":
        # SQLite takes "file:" names with options of its own after the path.
        name = (url.database or ":memory:").removeprefix("file:").partition("?")[0]
        _check_file(Path(name), is_sqlite=True)
    return RDBStorage(storage, skip_table_creation=True)


def _check_file(path: Path, *, is_sqlite: bool) -> None:
    if not path.is_file():
        reason = "it is not a file" if path.exists() else "there is no such file"
        raise InvalidArgumentError("STORAGE", str(path), problem=reason, fix=_WHAT)
    with path.open("rb") as file:
        has_sqlite_header = file.read(16) == b"SQLite format 3\0"
    if has_sqlite_header != is_sqlite:
        reason = "it is a SQLite database" if has_sqlite_header else "it is not a SQLite database"
        fix = "Give sqlite:///PATH for a database, and the path alone for a journal."
        raise InvalidArgumentError("STORAGE", str(path), problem=reason, fix=fix)

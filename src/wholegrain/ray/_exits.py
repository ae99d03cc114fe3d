"""Why an actor ended, as far as Ray tells."""

import re
from typing import Any

from wholegrain._workers.backend import WorkerExit

# What Ray says about actors that end for reasons outside of them.
_OUTSIDE = re.compile(
    r"node (?:it was running on |has |was |is )?(?:died|dead|removed|terminated|drained)"
    r"|its node has died|raylet|was killed by `?ray\.kill|NODE_DIED|INTENDED_SYSTEM_EXIT"
    r"|placement group was removed|preempt|drain",
    re.IGNORECASE,
)
# Lines that identify the actor, and general advice.
_DETAILS = re.compile(
    r"^\t\w+: .*\n?|^The actor died unexpectedly.*\n?|Some common causes .*", re.MULTILINE
)


def is_loss(error: BaseException) -> bool:
    """Return whether an error of `ray.get` means that a worker, or what it sent, is lost."""
    from ray import exceptions

    if isinstance(error, exceptions.RayActorError):
        return not error.actor_init_failed
    return isinstance(
        error,
        (
            exceptions.ObjectLostError,
            exceptions.NodeDiedError,
            exceptions.WorkerCrashedError,
            exceptions.OutOfMemoryError,
            exceptions.TaskCancelledError,
        ),
    )


def exit_of(error: BaseException | None, name: str) -> WorkerExit:
    """Describe how an actor ended.

    Args:
        error: What `ray.get` raised; None if the actor was ended by this process.
        name: The worker's name.
    """
    from ray import exceptions

    if error is None:
        return WorkerExit("an end that this process asked for", is_blameless=True)
    text = _DETAILS.sub("", str(error)).strip()
    if isinstance(error, exceptions.OutOfMemoryError) or "memory pressure" in text:
        hint = (
            "Ray ends workers when a node runs out of memory: use fewer of them per node"
            " (`RayBackend(num_cpus=2)`), or give them memory (`resources`)."
        )
        return WorkerExit("too little memory on its node", report=text, hint=hint)
    if isinstance(error, exceptions.ObjectLostError):
        return WorkerExit(
            f"the loss of elements of {name} in the object store", report=text, is_blameless=True
        )
    if isinstance(error, exceptions.RayActorError):
        if error.preempted:
            return WorkerExit("the preemption of its node", report=text, is_blameless=True)
        if isinstance(error, exceptions.ActorUnavailableError):
            return WorkerExit("the loss of its connection", report=text, is_blameless=True)
    is_outside = bool(_OUTSIDE.search(text))
    hint = "" if is_outside else "Code that it runs may have called `sys.exit` or `os._exit`."
    return WorkerExit(_reason(text), is_blameless=is_outside, hint=hint)


def _reason(text: str) -> str:
    """Return what Ray says about the cause, as part of a sentence."""
    _, _, detail = text.partition("Worker exit detail: ")
    said = (detail or text).strip().splitlines() or ["an unknown cause"]
    return f'the report of Ray "{said[0].strip(" .")[:300]}"'


def creation_error(error: Any, name: str) -> RuntimeError:
    """Return the error for an actor that cannot be created."""
    return RuntimeError(
        f"{name.capitalize()} could not be created as an actor. The nodes need the packages that"
        " this program uses, wholegrain among them: install them there, or list them in"
        f" `RayBackend(runtime_env={{'pip': [...]}})`. Ray reports: {error}"
    )

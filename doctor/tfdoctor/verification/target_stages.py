"""Run the stages that images and environments share: `driver`, `libraries` and those of the payload."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Severity
from tfdoctor.diagnosis import evaluate_facts
from tfdoctor.diagnosis.tensorflow_run import (
    KILLED_STATUSES,
    LOADER_LOG_VARIABLES,
    RunAnswer,
    find_failure_cause,
    list_relevant_libraries,
    make_observation,
)
from tfdoctor.rules import compute_fails
from tfdoctor.system import Failure
from tfdoctor.system.payloads import run_payload
from tfdoctor.system.signals import stop_on_signal
from tfdoctor.verification import simulation
from tfdoctor.verification.findings import (
    make_failed_stage_finding,
    make_gpu_count_finding,
    make_out_of_memory_finding,
    make_timeout_finding,
)
from tfdoctor.verification.stages import PAYLOAD_STAGES, parse_payload_results

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.cards import Cards
    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Finding, Report, Stage
    from tfdoctor.system import CommandResult, System
    from tfdoctor.verification.session import VerificationRun
    from tfdoctor.verification.stages import PayloadResults

__all__ = ["PROBE_TIMEOUT_S", "run_stages"]

PROBE_TIMEOUT_S = 30.0
"""Time limit in seconds for a probe of the container or environment."""
NCCL_VARIABLES = {"NCCL_DEBUG": "WARN"}
"""The variable that makes NCCL log its warnings."""
NCCL_WARNING = re.compile(r"NCCL WARN ([^\n]{1,300})")
DRIVER_LIBRARIES = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
"""The libraries that the stage `driver` checks instead of the stage `libraries`."""


def run_stages(run: VerificationRun, system: System, compat: Compat, report: Report) -> None:
    """Run the stages `driver` and `libraries`, then the stages of the payload, and record them in `run`."""
    facts, run.report = report.facts, report
    requested = run.verify_request.stages
    if not run.has_failed and run.verify_request.device == "GPU" and "driver" in requested:
        _check_driver(run, facts, report)
    if not run.has_failed and "libraries" in requested:
        _check_libraries(run, facts, report)
    interpreter, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    if run.has_failed and run.verify_request.device == "GPU":
        run.findings += [finding for finding in report.findings if finding.severity is Severity.ERROR]
        return
    tensorflow_stages = [name for name in ("libraries", *PAYLOAD_STAGES) if name in requested]
    if tensorflow_stages and (interpreter is None or tensorflow is None):
        root = report.root_finding
        detail = "there is no TensorFlow in it" if interpreter is not None else "no Python answers in it"
        run.record_failure(
            tensorflow_stages[0], detail, root.cause if root is not None else Cause.INCONCLUSIVE
        )
        run.findings += list(report.findings)
        return
    if interpreter is None or tensorflow is None or not any(name in requested for name in PAYLOAD_STAGES):
        return
    if run.verify_request.simulated_gpus is not None and not simulation.can_list_gpus(
        run, tensorflow, compat
    ):
        simulation.check_kernels(run, system, interpreter, tensorflow, report, compat)
        run.findings += [f for f in report.findings if f.severity is not Severity.INFO]
        return
    results, result = _run_payload(
        run, system, interpreter.executable, find_float32_speeds(facts, compat.cards)
    )
    observation = make_observation(
        _build_run_output(results, result), result, list_relevant_libraries(tensorflow, compat), compat
    )
    report = evaluate_facts(facts, compat, observation, image=run.image)
    run.report = report
    _record_stages(run, results, result, report, compat)
    if run.verify_request.simulated_gpus is not None:
        simulation.check_kernels(run, system, interpreter, tensorflow, report, compat)
    stage = next((s for s in run.stages if s.status == "failed"), None)
    if stage is not None and stage.name in PAYLOAD_STAGES:
        run.findings += _list_stage_findings(run, stage, results, result, report)
    run.findings += [f for f in report.findings if f.severity is not Severity.INFO]


def _list_stage_findings(
    run: VerificationRun, stage: Stage, results: PayloadResults, result: CommandResult, report: Report
) -> list[Finding]:
    """Return findings for a failed stage if no rule explains it.

    Without them, an unrelated finding would look like the reason for the failure.
    """
    if results.timed_out:
        return [make_timeout_finding(run, stage.name, stage.detail)]
    if result.returncode in KILLED_STATUSES and run.cause in (None, Cause.INCONCLUSIVE):
        run.cause = Cause.OOM
        return [make_out_of_memory_finding(run, is_reported=False)]
    cause = run.cause or Cause.INCONCLUSIVE
    is_explained = any(
        finding.severity is Severity.ERROR and finding.cause is cause for finding in report.findings
    )
    # The payload passed the stage, so it failed because of the number of GPUs. A rule may explain why there is none.
    if (
        stage.name == "visible"
        and results.get_status("visible") == "passed"
        and (results.device_names or not is_explained)
    ):
        cuda = value_of(report.facts.driver.cuda)
        return [
            make_gpu_count_finding(run, len(results.device_names), cuda.count if cuda is not None else None)
        ]
    if is_explained:
        return []
    return [make_failed_stage_finding(run, stage)]


def _check_driver(run: VerificationRun, facts: Facts, report: Report) -> None:
    """Record the stage `driver`, according to the facts about libcuda."""
    cuda = value_of(facts.driver.cuda)
    missing = [name for name in report.prediction.missing_libraries if name in DRIVER_LIBRARIES]
    simulated_note = " (simulated)" if run.verify_request.simulated_gpus is not None else ""
    if run.verify_request.simulated_gpus is not None and simulation.check_simulated_driver(run, facts):
        return
    if cuda is not None and cuda.loaded and cuda.init == 0 and cuda.count and not missing:
        run.record_stage(
            "driver",
            "passed",
            f"libcuda answers{simulated_note}: CUDA {cuda.version}, {cuda.count} device{'s' * (cuda.count != 1)}",
        )
        return
    root = report.root_finding
    if cuda is None:
        run.record_stage("driver", "skipped", "the driver could not be asked")
        return
    detail = root.title if root is not None else (cuda.load_error or cuda.init_name or "no device")
    run.record_failure("driver", detail, root.cause if root is not None else report.prediction.cause)


def _check_libraries(run: VerificationRun, facts: Facts, report: Report) -> None:
    """Record the stage `libraries`, according to the resolutions of the loader."""
    tensorflow = value_of(facts.tensorflow)
    if tensorflow is None:
        return
    missing = [name for name in report.prediction.missing_libraries if name not in DRIVER_LIBRARIES]
    if missing:
        cause = report.root_finding.cause if report.root_finding is not None else report.prediction.cause
        run.record_failure("libraries", f"the loader cannot open {', '.join(missing)}", cause)
        return
    loader = value_of(facts.loader)
    resolutions = [
        r for r in (loader.resolutions if loader is not None else ()) if r.soname not in DRIVER_LIBRARIES
    ]
    count = sum(resolution.ok for resolution in resolutions)
    if not count:
        run.record_stage("libraries", "skipped", "which libraries this TensorFlow opens is not known")
        return
    run.record_stage("libraries", "passed", f"the loader gives all {count} that TensorFlow opens")


def find_float32_speeds(facts: Facts, cards: Cards) -> dict[str, float]:
    """Return the expected float32 speed of each GPU in GFLOP/s, by its number. Unknown speeds are omitted."""
    gpu_speeds = find_expected_speeds(facts, cards)
    return {gpu: speeds["float32"] for gpu, speeds in gpu_speeds.items() if "float32" in speeds}


def find_expected_speeds(facts: Facts, cards: Cards) -> dict[str, dict[str, float]]:
    """Return the expected speed of each GPU in GFLOP/s, by its number and the data type.

    The types are float32, tf32, float16 and bfloat16. The speed is that of the tensor cores if the GPU has them.
    GPUs with unknown properties are omitted.
    """
    cuda = value_of(facts.driver.cuda)
    gpu_speeds = {}  # a fused multiply-add counts as two operations
    for device in cuda.devices if cuda is not None else ():
        if device.compute_capability and device.multiprocessors and device.clock_mhz:
            gpu_speeds[str(device.ordinal)] = {
                dtype: 2.0 * adds_per_clock * device.multiprocessors * device.clock_mhz / 1000
                for dtype, adds_per_clock in cards.list_adds_per_clock(
                    device.compute_capability, device.name
                ).items()
            }
    return gpu_speeds


def _run_payload(
    run: VerificationRun, system: System, python: str, expected_speeds: dict[str, float]
) -> tuple[PayloadResults, CommandResult]:
    """Run the payload and return its results.

    It ends itself at a stage's time limit. If it does not, it is killed.
    """
    verify_request = run.verify_request
    names = [name for name in verify_request.stages if name in PAYLOAD_STAGES]
    if verify_request.simulated_gpus is not None:
        names = [name for name in names if name not in simulation.COMPUTING_STAGES]
    request: dict[str, Any] = {
        "stages": names,
        "device": verify_request.device,
        "limits": verify_request.limits.as_json(),
    }
    if run.image is not None:  # on the host, no code of the working directory is run
        request["in_cwd"] = True
    if verify_request.device == "GPU":
        request["expected"] = expected_speeds
    with stop_on_signal(system):
        _, result = run_payload(
            system,
            python,
            "stages",
            [json.dumps(request)],
            timeout=verify_request.limits.sum_limits(names) + 15,  # seconds to start Python and to end
            env={
                **LOADER_LOG_VARIABLES,
                **(NCCL_VARIABLES if verify_request.device == "GPU" else {"CUDA_VISIBLE_DEVICES": "-1"}),
            },
            unset=("TF_CPP_MAX_VLOG_LEVEL",),
        )
    return parse_payload_results(result, verify_request.limits), result


def _build_run_output(results: PayloadResults, result: CommandResult) -> RunAnswer:
    """Return the payload's results in the form of a `check --deep`."""
    has_device_list = results.get_status("visible") in ("passed", "failed")
    return RunAnswer(
        import_succeeded=results.get_status("import") == "passed",
        gpu_names=results.device_names if has_device_list else None,
        compute_results=tuple(results.format_gpu_results()),
        error=results.first_error,
        seconds=result.seconds,
        timed_out=result.failure is Failure.TIMEOUT or results.timed_out,
    )


def _record_stages(
    run: VerificationRun, results: PayloadResults, result: CommandResult, report: Report, compat: Compat
) -> None:
    """Record the payload's stages, with the root cause of the first failure."""
    for name in PAYLOAD_STAGES:
        if name not in run.verify_request.stages:
            continue
        stage = results.find_stage(name)
        if stage is None or run.has_failed:
            continue
        if name == "visible" and stage.status == "passed" and run.verify_request.device == "GPU":
            stage = _check_gpu_count(run, stage, len(results.device_names))
        if stage.status == "failed":
            if name == "nccl":
                stage = replace(stage, detail=_add_nccl_warning(stage.detail, result.stderr))
            run.record_failure(
                name, stage.detail, _find_cause(name, results, result, report, compat), stage.seconds
            )
        else:
            run.record_stage(name, stage.status, stage.detail, stage.seconds)
    if results.topology and run.stages and run.stages[-1].name == "nccl":
        run.stages[-1] = replace(run.stages[-1], detail=f"{run.stages[-1].detail} ({results.topology})")
    run.visible_count = (
        len(results.device_names) if results.get_status("visible") in ("passed", "failed") else None
    )
    if results.get_status("compute") in ("passed", "failed"):
        run.computed_count = results.count_correct_gpus()


def _add_nccl_warning(detail: str, stderr: str) -> str:
    """Append the last NCCL warning to TensorFlow's message, which does not name the reason."""
    warnings = NCCL_WARNING.findall(stderr)
    return f"{detail.rstrip('. ')}. NCCL: {warnings[-1].strip()}" if warnings else detail


def _check_gpu_count(run: VerificationRun, stage: Stage, visible_count: int) -> Stage:
    """Return the stage, or a failed stage if a different number of GPUs was expected."""
    if run.expected_count is None or visible_count == run.expected_count:
        return stage
    plural = "s" * (run.expected_count != 1)
    return replace(
        stage, status="failed", detail=f"TensorFlow lists {visible_count} of {run.expected_count} GPU{plural}"
    )


def _find_cause(
    stage_name: str, results: PayloadResults, result: CommandResult, report: Report, compat: Compat
) -> Cause | None:
    """Return why a stage failed, according to the rules, or else to the log; None if the cause is unknown."""
    root = report.root_finding
    if stage_name in ("import", "visible") and root is not None:
        return root.cause
    for finding in report.findings:
        if (
            finding.code == compute_fails.RULE.code
            and finding.cause is not Cause.INCONCLUSIVE
            and stage_name == "compute"
        ):
            return finding.cause
    if stage_name == "nccl":
        return Cause.NCCL_FAILURE
    cause = find_failure_cause(result, results.first_error, compat)
    if cause is None and root is not None and root.severity is Severity.ERROR:  # a warning is not the cause
        return root.cause
    return cause

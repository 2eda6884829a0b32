"""A user's own Dockerfile: read, and judged without building it (`tfdoctor build --check`)."""

from __future__ import annotations

from tfdoctor.containerfile.judge import Judged, judge_dockerfile

__all__ = ["Judged", "judge_dockerfile"]

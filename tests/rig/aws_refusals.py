"""Errors as gpuctl's AWS client raises them, with AWS's code."""

from __future__ import annotations

from gpuctl.core.errors import GpuctlError


class Refusal(Exception):
    """Stand-in of botocore's ClientError."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.response = {"Error": {"Code": code, "Message": message}}


def refused(code: str, message: str = "it is in use") -> GpuctlError:
    error = GpuctlError("change it", f"{message} ({code})")
    error.__cause__ = Refusal(code, message)
    return error

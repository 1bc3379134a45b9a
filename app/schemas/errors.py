"""OpenAI's envelope of errors, for the API's own description (OPENAI_CONTRACT 1.10). app.api.errors writes it."""

from app.schemas.wire import Wire


class ErrorDetail(Wire):
    """What went wrong. `param` names an argument as the caller wrote it."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorEnvelope(Wire):
    """The body of every answer that is an error, whoever raised it."""

    error: ErrorDetail

"""Reading `multipart/form-data` as it arrives: small fields are kept, the file goes straight to where it is written."""

from collections.abc import Callable

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from app.domain.errors import BadRequest, TooLarge

MAX_FIELD_BYTES = 4096
MAX_FIELDS = 32
# What HTML's rules for forms escape in a part's file name.
_ESCAPES = (("%22", '"'), ("%0D", "\r"), ("%0A", "\n"))


class UploadForm:
    """One form with one file, fed piece by piece; the parts may come in any order.

    `write` takes the file's bytes. Raises BadRequest for what is no such form, TooLarge for a file above `max_bytes`.
    """

    def __init__(self, content_type: str, write: Callable[[bytes], None], *, max_bytes: int) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise BadRequest(
                "send the file as multipart/form-data, with the parts `purpose` and `file`", code="invalid_body"
            )
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self.complete = False
        self._write = write
        self._max_bytes = max_bytes
        self._bytes = 0
        self._name = ""
        self._in_file = False
        self._value = bytearray()
        self._header: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self._headers: dict[bytes, bytes] = {}
        try:
            self._parser = MultipartParser(
                options[b"boundary"],
                {
                    "on_part_begin": self._on_part_begin,
                    "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers_finished,
                    "on_part_data": self._on_part_data,
                    "on_part_end": self._on_part_end,
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise BadRequest(f"this is no multipart form: {error}", code="invalid_body") from error

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise BadRequest(f"this is no multipart form: {error}", code="invalid_body") from error

    def _on_part_begin(self) -> None:
        self._headers = {}
        self._value = bytearray()

    def _on_header_end(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._name = _text(options.get(b"name", b""))
        self._in_file = self._name == "file"
        if not self._in_file:
            if self._name in self.fields or len(self.fields) >= MAX_FIELDS:
                raise BadRequest(f"the form has too many parts, or {self._name!r} twice", code="invalid_body")
            return
        if self.filename is not None:
            raise BadRequest("the form has two files; send one", code="invalid_body", param="file")
        # A part without a file name is still the file: that is how curl sends `-F file=text`.
        self.filename = _filename(options.get(b"filename", b"upload"))

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._bytes += end - start
            if self._bytes > self._max_bytes:
                raise too_large(self._max_bytes)
            self._write(data[start:end])
        elif len(self._value) + end - start > MAX_FIELD_BYTES:
            raise BadRequest(f"Invalid value for '{self._name}': it is too long.", param=self._name)
        else:
            self._value += data[start:end]

    def _on_part_end(self) -> None:
        if not self._in_file:
            self.fields[self._name] = _text(bytes(self._value))

    def _on_end(self) -> None:
        self.complete = True


def too_large(max_bytes: int) -> TooLarge:
    """Say how much is too much."""
    message = f"The file is too large: at most {max_bytes} bytes ({max_bytes / 2**20:.0f} MiB) are taken here."
    return TooLarge(message, code="file_too_large", param="file")


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _filename(data: bytes) -> str:
    """Decode a file's name, without the folders before it."""
    name = _text(data)
    for escape, character in _ESCAPES:
        name = name.replace(escape, character)
    return name.rpartition("/")[2][:1024] or "upload"

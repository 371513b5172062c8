"""The errors a caller can cause or must handle; each message is one clear sentence."""


class RadiusFpsError(Exception):
    """Base of all errors this package raises on purpose."""


class InputError(RadiusFpsError, ValueError):
    """What the caller gave cannot be used; the message says what is wrong and what is allowed."""


class BackendError(RadiusFpsError, RuntimeError):
    """The requested backend cannot run here, or its device reported a fault."""

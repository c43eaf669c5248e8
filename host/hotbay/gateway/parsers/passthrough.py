"""`passthrough-parser`: claims no path and so takes all that nobody claims; forwards bodies as they are. Pure."""

from typing import Final

from hotbay.gateway.parsers.form import Form, ModelName, accept, no_prompts

__all__ = ["FORM", "TYPE"]

TYPE: Final = "passthrough-parser"

FORM: Final = Form(accept, no_prompts, model=ModelName.OPTIONAL, is_read=False)

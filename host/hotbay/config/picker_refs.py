"""Reads references to plugins, and checks that they name one. Pure."""

from collections.abc import Collection, Mapping

from hotbay.config.forms import Form
from hotbay.config.picker_model import PluginEntry, RefEntry
from hotbay.config.wording import Path, Value, nearest, quoted

__all__ = ["RefReader"]


class RefReader:
    """Reads references of one document; `plugins` are those declared so far.

    `checked` False: undeclared plugins are not reported, because names are missing for a reason that was.
    """

    def __init__(self, form: Form, plugins: Mapping[str, PluginEntry]) -> None:
        self._form = form
        self._plugins = plugins
        self.checked = True

    def entry(
        self,
        value: Value,
        path: Path,
        known: Collection[str],
        *,
        made: Collection[str] = (),
        renamed: Mapping[str, str],
    ) -> RefEntry | None:
        """A mapping with the one field `pluginRef`; `made` are names that stand for a plugin without one being declared."""
        before = len(self._form.problems)
        fields = self._form.fields(value, path, known, renamed=renamed)
        if "pluginRef" not in fields and len(self._form.problems) > before:
            # Most likely its misspelling was just reported.
            return None
        return self.of_fields(fields, path, made=made)

    def of_fields(
        self, fields: Mapping[str, Value], path: Path, weight: float | None = None, *, made: Collection[str] = ()
    ) -> RefEntry | None:
        """The reference among the fields of the entry at `path`."""
        if fields.get("pluginRef", "") == "":
            hint = "name one of `plugins`"
            self._form.report(path, "CONFIG_INVALID", "this entry is missing a 'pluginRef'", hint=hint)
            return None
        found = self.named(fields["pluginRef"], (*path, "pluginRef"), made=made)
        return None if found is None else RefEntry(found, weight, self._form.document.place(path), path)

    def named(self, value: Value, path: Path, *, made: Collection[str] = ()) -> str | None:
        """The name that stands at `path`."""
        ref = self._form.name(value, path)
        if ref is not None and ref not in self._plugins and ref not in made and self.checked:
            guess = nearest(ref, self._plugins)
            hint = f"did you mean {quoted(guess)}?" if guess else "declare it under `plugins`"
            message = f"references undefined plugin {quoted(ref)}"
            self._form.report(path, "UNDEFINED_REF", message, hint=hint)
        return ref

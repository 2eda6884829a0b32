"""Run by an interpreter with TensorFlow: find what its modules use from other packages while they are imported.
TensorFlow is imported, then the sources of its loaded modules are read: every import that is executed by an import of
the module, and every attribute of an imported module that is used there. Prints one JSON line. With names of packages
as arguments: imports TensorFlow as if those were missing (`hollow:name`: as if it were an empty folder), and reports
success. Python 3.5 and newer.
"""

import sys

BEFORE = set(sys.modules)

import ast
import json
import os

MARKER = "tfdoctor-imports:"
OWN = ("tensorflow", "tensorflow_core")
FAMILY = ("keras", "tf_keras", "tensorflow_estimator")
# These packages import TensorFlow themselves, so they must not be imported before it.


def iter_executed(body, guard, annotations):
    """Yield (statement or expression, guard) for all that an import executes, without bodies of functions.

    guard: "" if an error stops the import; "try" below a try with handlers; "if" if it may not be reached.
    """
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            expressions = (
                node.decorator_list
                + arguments.defaults
                + [default for default in arguments.kw_defaults if default]
            )
            if annotations:
                parameters = arguments.args + arguments.kwonlyargs + [arguments.vararg, arguments.kwarg]
                expressions += [
                    item.annotation for item in parameters if item is not None and item.annotation
                ]
                expressions += [node.returns] if node.returns else []
            for item in expressions:
                yield item, guard
        elif isinstance(node, ast.ClassDef):
            for item in node.decorator_list + node.bases + [keyword.value for keyword in node.keywords]:
                yield item, guard
            for item in iter_executed(node.body, guard, annotations):
                yield item
        elif isinstance(node, ast.If):
            yield node.test, guard
            if "TYPE_CHECKING" not in ast.dump(node.test):
                for item in iter_executed(node.body, guard or "if", annotations):
                    yield item
            for item in iter_executed(node.orelse, guard or "if", annotations):
                yield item
        elif isinstance(node, ast.Try):
            for item in iter_executed(node.body, "try" if node.handlers else guard, annotations):
                yield item
            for handler in node.handlers:
                for item in iter_executed(handler.body, guard or "if", annotations):
                    yield item
            for item in iter_executed(node.orelse, "try" if node.handlers else guard, annotations):
                yield item
            for item in iter_executed(node.finalbody, guard, annotations):
                yield item
        elif isinstance(node, (ast.With, ast.For, ast.While)):
            for item in iter_executed(node.body, guard or "if", annotations):
                yield item
        else:
            yield node, guard


class Chains(ast.NodeVisitor):
    """Collects attributes of plain names: `numpy.random.rand` is ("numpy", "random.rand")."""

    def __init__(self):
        self.collected = []

    def visit_Lambda(self, node):
        pass

    def visit_Attribute(self, node):
        chain, inner = [], node
        while isinstance(inner, ast.Attribute):
            chain.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            self.collected.append((inner.id, ".".join(chain)))
        else:
            self.visit(inner)


def find_folder_lookups(node):
    """Yield the names of modules whose folder TensorFlow looks up, to put it on its own path."""
    for call in ast.walk(node):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "get_parent_dir"
        ):
            for argument in call.args:
                if isinstance(argument, ast.Name):
                    yield argument.id


class Needs:
    """The required (module, attribute or "") pairs in the order of occurrence, each with its strictest guard."""

    STRENGTH = {"": 0, "try": 1, "if": 2}

    def __init__(self, own):
        self.own_packages = own
        self.guards = {}
        self.order = []

    def add(self, module, name, guard):
        if module.split(".")[0] in self.own_packages:
            return
        key = (module, name)
        if key not in self.guards:
            self.order.append(key)
            self.guards[key] = guard
        elif self.STRENGTH[guard] < self.STRENGTH[self.guards[key]]:
            self.guards[key] = guard

    def read(self, path):
        with open(path, "rb") as stream:
            tree = ast.parse(stream.read())
        postponed = any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and "annotations" in [a.name for a in node.names]
            for node in tree.body
        )
        imported = {}
        for node, guard in iter_executed(tree.body, "", not postponed):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.add(alias.name, "", guard)
                    top_name = alias.name.split(".")[0]
                    imported[alias.asname or top_name] = (alias.name if alias.asname else top_name, "", guard)
            elif isinstance(node, ast.ImportFrom):
                if node.level or not node.module:
                    continue
                for alias in node.names:
                    name = "" if alias.name == "*" else alias.name
                    self.add(node.module, name, guard)
                    imported[alias.asname or alias.name] = (node.module, alias.name, guard)
            else:
                chains = Chains()
                chains.visit(node)
                for name, chain in chains.collected:
                    if name in imported:
                        # An optional module is also optional where it is used.
                        module, imported_name, import_guard = imported[name]
                        weaker_guard = max(guard, import_guard, key=self.STRENGTH.__getitem__)
                        self.add(
                            module, imported_name + "." + chain if imported_name else chain, weaker_guard
                        )
                for name in find_folder_lookups(node):
                    module, imported_name, import_guard = imported.get(name, ("", "", ""))
                    if module:  # TensorFlow needs the module's file, which a folder without an __init__ lacks
                        self.add(module + "." + imported_name if imported_name else module, "", import_guard)


def list_sources(tops):
    """Yield the files of the loaded modules below these packages, in the order of loading."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if name.split(".")[0] in tops and path.endswith(".py") and os.path.isfile(path):
            yield path


def find_needs(tops):
    needs = Needs(tops)
    for path in list_sources(tops):
        needs.read(path)
    return [[module, name, needs.guards[module, name]] for module, name in needs.order]


def list_versions():
    try:
        from importlib.metadata import distributions
    except ImportError:
        import pkg_resources

        return {d.project_name: d.version for d in pkg_resources.working_set}
    version_by_name = {}
    for distribution in distributions():
        version_by_name.setdefault(distribution.metadata["Name"], distribution.version)
    return version_by_name


def list_mapped():
    """Return the files that are mapped into this process, including shared objects."""
    with open("/proc/self/maps") as stream:
        return set(line.split(None, 5)[5].strip() for line in stream if len(line.split(None, 5)) == 6)


def list_idle(tensorflow):
    """Return the sources and shared objects of TensorFlow that its import does not load.

    The paths are relative to site-packages.
    """
    root = os.path.dirname(os.path.dirname(tensorflow.__file__))
    loaded = set(os.path.realpath(path) for path in list_sources(OWN)) | set(map(os.path.realpath, list_mapped()))
    unloaded = []
    for top in OWN:
        for folder, _, files in os.walk(os.path.join(root, top)):
            paths = [os.path.join(folder, name) for name in files if name.endswith(".py") or ".so" in name]
            remaining = [path for path in paths if os.path.realpath(path) not in loaded]
            unloaded += [os.path.relpath(path, root).replace(os.sep, "/") for path in remaining]
    return sorted(unloaded)


class FilteringHook:
    """An import hook that does not find some packages, or finds them without their __init__."""

    def __init__(self, hook, tops):
        self.hook = hook
        self.tops = tops

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.tops:
            return None
        spec = self.hook.find_spec(name, path, target)
        if spec is None or "hollow:" + name not in self.tops:
            return spec
        empty = type(spec)(name, None, is_package=True)
        empty.submodule_search_locations += spec.submodule_search_locations or []
        return empty

    def __getattr__(self, name):
        return getattr(self.hook, name)


def main():
    if len(sys.argv) > 1:
        sys.meta_path[:] = [FilteringHook(hook, sys.argv[1:]) for hook in sys.meta_path]
        import tensorflow

        print(MARKER + json.dumps({"tensorflow": tensorflow.__version__}))
        return
    installed = list_versions()  # some packages add folders to the path
    import tensorflow

    after = set(sys.modules)
    third_party = {
        name.split(".")[0]
        for name in after
        for module in [sys.modules[name]]
        if "site-packages" in (getattr(module, "__file__", None) or "")
    }
    answer = {
        "tensorflow": getattr(tensorflow, "__version__", ""),
        "python": "%d.%d" % sys.version_info[:2],
        "needs": find_needs(OWN),
        "family": {name: find_needs((name,)) for name in FAMILY if name in after},
        "standard": sorted({name for name in after - BEFORE if "." not in name} - third_party - set(OWN)),
        "loaded": sorted(third_party - set(OWN)),
        "idle": list_idle(tensorflow),
        "versions": installed,
    }
    print(MARKER + json.dumps(answer))


main()

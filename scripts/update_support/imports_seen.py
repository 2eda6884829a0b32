"""Run by an interpreter that has TensorFlow: what its modules take of other packages while it is imported.
TensorFlow is imported, then the sources of its loaded modules are read: every import that stands where an import
of the module executes it, and every attribute of such a module that is taken there. Prints one JSON line.
With names of packages: imports it as if those were not there (`hollow:name`: were an empty folder), and says that this
works. Python 3.5 and newer.
"""
import sys

BEFORE = set(sys.modules)

import ast
import json
import os

MARKER = "tfdoctor-imports:"
OWN = ("tensorflow", "tensorflow_core")
FAMILY = ("keras", "tf_keras", "tensorflow_estimator")
# They import TensorFlow themselves: they can be looked for, and not be imported before it.


def iter_executed(body, guard, annotations):
    """(statement or expression, guard) for all that an import executes: bodies of functions are left out.

    guard: "" where an error stops the import; "try" below a try with handlers; "if" where it may not be reached.
    """
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            found = node.decorator_list + arguments.defaults + [d for d in arguments.kw_defaults if d]
            if annotations:
                every = arguments.args + arguments.kwonlyargs + [arguments.vararg, arguments.kwarg]
                found += [one.annotation for one in every if one is not None and one.annotation]
                found += [node.returns] if node.returns else []
            for one in found:
                yield one, guard
        elif isinstance(node, ast.ClassDef):
            for one in node.decorator_list + node.bases + [keyword.value for keyword in node.keywords]:
                yield one, guard
            for one in iter_executed(node.body, guard, annotations):
                yield one
        elif isinstance(node, ast.If):
            yield node.test, guard
            if "TYPE_CHECKING" not in ast.dump(node.test):
                for one in iter_executed(node.body, guard or "if", annotations):
                    yield one
            for one in iter_executed(node.orelse, guard or "if", annotations):
                yield one
        elif isinstance(node, ast.Try):
            for one in iter_executed(node.body, "try" if node.handlers else guard, annotations):
                yield one
            for handler in node.handlers:
                for one in iter_executed(handler.body, guard or "if", annotations):
                    yield one
            for one in iter_executed(node.orelse, "try" if node.handlers else guard, annotations):
                yield one
            for one in iter_executed(node.finalbody, guard, annotations):
                yield one
        elif isinstance(node, (ast.With, ast.For, ast.While)):
            for one in iter_executed(node.body, guard or "if", annotations):
                yield one
        else:
            yield node, guard


class Chains(ast.NodeVisitor):
    """Attributes of plain names: `numpy.random.rand` is ("numpy", "random.rand")."""

    def __init__(self):
        self.found = []

    def visit_Lambda(self, node):
        pass

    def visit_Attribute(self, node):
        chain, at = [], node
        while isinstance(at, ast.Attribute):
            chain.insert(0, at.attr)
            at = at.value
        if isinstance(at, ast.Name):
            self.found.append((at.id, ".".join(chain)))
        else:
            self.visit(at)


def folders_of(node):
    """The names of modules whose folder TensorFlow asks for, to put it on its own path."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "get_parent_dir":
            for argument in one.args:
                if isinstance(argument, ast.Name):
                    yield argument.id


class Needs:
    """(module, attributes or ""), in the order in which they are met; for each the weakest guard."""

    STRENGTH = {"": 0, "try": 1, "if": 2}

    def __init__(self, own):
        self.own = own
        self.found = {}
        self.order = []

    def add(self, module, name, guard):
        if module.split(".")[0] in self.own:
            return
        key = (module, name)
        if key not in self.found:
            self.order.append(key)
            self.found[key] = guard
        elif self.STRENGTH[guard] < self.STRENGTH[self.found[key]]:
            self.found[key] = guard

    def read(self, path):
        with open(path, "rb") as stream:
            tree = ast.parse(stream.read())
        postponed = any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and "annotations" in [a.name for a in node.names]
            for node in tree.body
        )
        bound = {}
        for node, guard in iter_executed(tree.body, "", not postponed):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.add(alias.name, "", guard)
                    top = alias.name.split(".")[0]
                    bound[alias.asname or top] = (alias.name if alias.asname else top, "", guard)
            elif isinstance(node, ast.ImportFrom):
                if node.level or not node.module:
                    continue
                for alias in node.names:
                    name = "" if alias.name == "*" else alias.name
                    self.add(node.module, name, guard)
                    bound[alias.asname or alias.name] = (node.module, alias.name, guard)
            else:
                seen = Chains()
                seen.visit(node)
                for name, chain in seen.found:
                    if name in bound:
                        module, first, how = bound[name]  # what may not be imported may not be used either
                        weaker = max(guard, how, key=self.STRENGTH.__getitem__)
                        self.add(module, first + "." + chain if first else chain, weaker)
                for name in folders_of(node):
                    module, first, how = bound.get(name, ("", "", ""))
                    if module:  # a folder without an __init__ has no file, and this asks for it
                        self.add(module + "." + first if first else module, "", how)


def sources(tops):
    """The files of the loaded modules below these packages, in the order of loading."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if name.split(".")[0] in tops and path.endswith(".py") and os.path.isfile(path):
            yield path


def find_needs(tops):
    needs = Needs(tops)
    for path in sources(tops):
        needs.read(path)
    return [[module, name, needs.found[module, name]] for module, name in needs.order]


def versions():
    try:
        from importlib.metadata import distributions
    except ImportError:
        import pkg_resources

        return {d.project_name: d.version for d in pkg_resources.working_set}
    found = {}
    for one in distributions():
        found.setdefault(one.metadata["Name"], one.version)
    return found


def list_mapped():
    """The files that are mapped into this process: shared objects among them."""
    with open("/proc/self/maps") as stream:
        return set(line.split(None, 5)[5].strip() for line in stream if len(line.split(None, 5)) == 6)


def idle(tensorflow):
    """TensorFlow's own sources and shared objects that its import does not load, below the folder of its package."""
    root = os.path.dirname(os.path.dirname(tensorflow.__file__))
    loaded = set(os.path.realpath(path) for path in sources(OWN)) | set(map(os.path.realpath, list_mapped()))
    found = []
    for top in OWN:
        for folder, _, files in os.walk(os.path.join(root, top)):
            paths = [os.path.join(folder, name) for name in files if name.endswith(".py") or ".so" in name]
            left = [path for path in paths if os.path.realpath(path) not in loaded]
            found += [os.path.relpath(path, root).replace(os.sep, "/") for path in left]
    return sorted(found)


class Without:
    """An import hook as it was, but for some packages, which it does not find, or finds without their __init__."""

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
        sys.meta_path[:] = [Without(hook, sys.argv[1:]) for hook in sys.meta_path]
        import tensorflow

        print(MARKER + json.dumps({"tensorflow": tensorflow.__version__}))
        return
    there = versions()  # some packages add folders to the path
    import tensorflow

    after = set(sys.modules)
    third = {
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
        "standard": sorted({name for name in after - BEFORE if "." not in name} - third - set(OWN)),
        "loaded": sorted(third - set(OWN)),
        "idle": idle(tensorflow),
        "versions": there,
    }
    print(MARKER + json.dumps(answer))


main()

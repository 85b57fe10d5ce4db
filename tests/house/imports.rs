//! The graph of imports among files: paths in `use`, code, macros and attributes, followed through
//! re-exports. Code under `#[cfg(test)]` is exempt.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::files::{is_for_tests, module_of};

pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

/// The paths and names in one file.
pub(crate) struct Reader<'a> {
    module: Vec<String>,
    /// The modules of the crate that have a file.
    modules: &'a BTreeSet<Vec<String>>,
    /// Absolute paths in the crate that the file names.
    named: BTreeSet<Vec<String>>,
    /// Absolute paths that only `pub use` names.
    handed_on: BTreeSet<Vec<String>>,
    /// Other paths: into other crates, or those that begin with a name in `imported`.
    pub(crate) others: BTreeSet<Vec<String>>,
    /// Paths that `use` imports, by their name in this file. Other files may import them from here.
    imported: BTreeMap<String, Vec<String>>,
    /// Modules that the file re-exports with `*`.
    globs: Vec<Vec<String>>,
    /// Names of items that the file defines.
    items: BTreeSet<String>,
    pub(crate) public_types: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn read(path: &str, source: &str, modules: &'a BTreeSet<Vec<String>>) -> Self {
        let mut reader = Self {
            module: module_of(path),
            modules,
            named: BTreeSet::new(),
            handed_on: BTreeSet::new(),
            others: BTreeSet::new(),
            imported: BTreeMap::new(),
            globs: Vec::new(),
            items: BTreeSet::new(),
            public_types: Vec::new(),
        };
        let tree = syn::parse_file(source).unwrap_or_else(|error| panic!("{path}: {error}"));
        reader.visit_file(&tree);
        reader
    }

    /// The absolute path, if the path is within the crate.
    fn absolute(&self, segments: &[String]) -> Option<Vec<String>> {
        let (mut at, mut rest) = (self.module.clone(), segments);
        match segments.first()?.as_str() {
            "crate" => (at, rest) = (Vec::new(), &segments[1..]),
            "self" | "super" => {
                while let Some(word @ ("self" | "super")) = rest.first().map(String::as_str) {
                    if word == "super" {
                        at.pop();
                    }
                    rest = &rest[1..];
                }
            }
            // A child module needs no `self`.
            _ if self.modules.contains(&[&at[..], &segments[..1]].concat()) => {}
            _ => return None,
        }
        Some([&at[..], rest].concat())
    }

    fn read_use(&mut self, tree: &syn::UseTree, before: &mut Vec<String>, public: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.read_use(&path.tree, before, public);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.read_use(item, before, public));
            }
            syn::UseTree::Glob(_) => {
                let all = [&before[..], &["*".to_owned()]].concat();
                if let Some(mut absolute) = self.take_import(&all, public) {
                    absolute.pop();
                    self.globs.push(absolute);
                }
            }
            syn::UseTree::Name(name) => {
                self.read_name(&name.ident, &name.ident, before, public);
            }
            syn::UseTree::Rename(rename) => {
                self.read_name(&rename.ident, &rename.rename, before, public);
            }
        }
    }

    fn read_name(
        &mut self,
        name: &syn::Ident,
        known_as: &syn::Ident,
        before: &[String],
        public: bool,
    ) {
        // `use a::b::{self}` names a::b; a leading `self` or `super` is part of the path.
        let own = (name != "self" || before.is_empty()).then(|| name.to_string());
        let path = [before, own.as_slice()].concat();
        let known_as = if name == known_as { path.last().cloned() } else { None }
            .unwrap_or_else(|| known_as.to_string());
        if let Some(absolute) = self.take_import(&path, public) {
            self.imported.insert(known_as, absolute);
        }
    }

    fn take_import(&mut self, path: &[String], public: bool) -> Option<Vec<String>> {
        let Some(absolute) = self.absolute(path) else {
            self.others.insert(path.to_vec());
            return None;
        };
        if public { &mut self.handed_on } else { &mut self.named }.insert(absolute.clone());
        Some(absolute)
    }

    fn name(&mut self, path: Vec<String>) {
        match self.absolute(&path) {
            Some(absolute) => self.named.insert(absolute),
            None => self.others.insert(path),
        };
    }

    /// Reads paths in the tokens of a macro or an attribute, which `syn` does not parse.
    fn read_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.name(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                proc_macro2::TokenTree::Punct(sign) if sign.as_char() == ':' => colons += 1,
                other => {
                    self.name(std::mem::take(&mut path));
                    colons = 0;
                    if let proc_macro2::TokenTree::Group(group) = other {
                        self.read_tokens(group.stream());
                    }
                }
            }
        }
        self.name(path);
    }

    fn define(&mut self, name: &syn::Ident, visibility: &syn::Visibility, is_type: bool) {
        let public = matches!(visibility, syn::Visibility::Public(_));
        self.items.insert(name.to_string());
        if public && is_type {
            self.public_types.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Struct(item) => self.define(&item.ident, &item.vis, true),
            syn::Item::Enum(item) => self.define(&item.ident, &item.vis, true),
            syn::Item::Trait(item) => self.define(&item.ident, &item.vis, true),
            syn::Item::Type(item) => self.define(&item.ident, &item.vis, true),
            syn::Item::Const(item) => self.define(&item.ident, &item.vis, false),
            syn::Item::Static(item) => self.define(&item.ident, &item.vis, false),
            syn::Item::Fn(item) if is_for_tests(&item.attrs) => return,
            syn::Item::Fn(item) => self.define(&item.sig.ident, &item.vis, false),
            syn::Item::ExternCrate(item) => self.name(vec![item.ident.to_string()]),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            let public = !matches!(item.vis, syn::Visibility::Inherited);
            self.read_use(&item.tree, &mut Vec::new(), public);
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.name(path.segments.iter().map(|part| part.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.read_tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.read_tokens(list.tokens.clone());
        }
        visit::visit_attribute(self, attribute);
    }
}

/// All files of a crate, parsed.
pub(crate) struct Imports<'a> {
    files: BTreeMap<Vec<String>, &'a str>,
    read: BTreeMap<&'a str, Reader<'a>>,
}

impl<'a> Imports<'a> {
    pub(crate) fn read(
        sources: &'a BTreeMap<String, String>,
        modules: &'a BTreeSet<Vec<String>>,
    ) -> Self {
        let read = |(path, source): (&'a String, &String)| {
            (path.as_str(), Reader::read(path, source, modules))
        };
        Self {
            files: sources.keys().map(|path| (module_of(path), path.as_str())).collect(),
            read: sources.iter().map(read).collect(),
        }
    }

    /// The file that defines the item at `path`. None for a module with its own file. Follows at
    /// most `steps` re-exports, so that the search ends.
    fn defined_in(&self, path: &[String], steps: usize) -> Option<&'a str> {
        let length = (0..=path.len()).rev().find(|at| self.files.contains_key(&path[..*at]))?;
        let (file, name) = (self.files[&path[..length]], path.get(length)?);
        let reader = &self.read[file];
        if reader.items.contains(name) || steps == 0 {
            return Some(file);
        }
        let through =
            |to: &[String]| self.defined_in(&[to, &path[length + 1..]].concat(), steps - 1);
        if let Some(to) = reader.imported.get(name) {
            return through(to);
        }
        let all = reader.globs.iter().filter(|glob| **glob != reader.module);
        let mut found = all.filter_map(|glob| {
            let file = self.defined_in(&[&glob[..], &path[length..]].concat(), steps - 1)?;
            self.read[file].items.contains(name).then_some(file)
        });
        Some(found.next().unwrap_or(file))
    }

    /// Which files name items of which other files. Re-exports count only if `handing_on` is set.
    pub(crate) fn graph(&self, handing_on: bool) -> Graph {
        let named = |reader: &Reader<'_>| {
            let mut named = reader.named.clone();
            if handing_on {
                named.extend(reader.handed_on.iter().cloned());
            }
            named.extend(reader.others.iter().filter_map(|path| {
                let known = reader.imported.get(path.first()?)?;
                Some([&known[..], &path[1..]].concat())
            }));
            named
        };
        self.read
            .iter()
            .map(|(path, reader)| {
                let files = named(reader).into_iter().filter_map(|to| self.defined_in(&to, 8));
                let others = files.filter(|file| file != path).map(str::to_owned);
                ((*path).to_owned(), others.collect())
            })
            .collect()
    }
}

/// The graph of a crate's files.
pub(crate) fn graph(sources: &BTreeMap<String, String>, handing_on: bool) -> Graph {
    let modules = sources.keys().map(|path| module_of(path)).collect();
    Imports::read(sources, &modules).graph(handing_on)
}

/// The groups of nodes that reach each other, each group sorted.
pub(crate) fn cycles(graph: &Graph) -> BTreeSet<Vec<String>> {
    let reach = |from: &str| {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(node) = todo.pop() {
            for next in graph.get(&node).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    todo.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<String>> =
        graph.keys().map(|node| (node.as_str(), reach(node))).collect();
    let group = |node: &str| {
        let back = reached[node].iter().filter(|to| reached[to.as_str()].contains(node));
        back.cloned().collect::<Vec<_>>()
    };
    graph.keys().map(|node| group(node)).filter(|group| !group.is_empty()).collect()
}

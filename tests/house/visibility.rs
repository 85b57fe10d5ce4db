//! A public item of a crate is named by another crate, or is part of such an item. The test
//! compares only names, so a common name such as `new` counts as used.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::files::{crate_files, crates, is_for_tests, production_of, root, rust_files};

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

/// The public items of a file, and the names in their declarations.
#[derive(Default)]
struct Surface {
    public: BTreeSet<String>,
    /// Names in signatures, public fields, variants, traits and their implementations.
    parts: BTreeSet<String>,
    in_part: bool,
}

impl Surface {
    fn read(source: &str) -> Self {
        let mut surface = Self::default();
        surface.visit_file(&syn::parse_file(source).unwrap());
        surface
    }

    fn publish(&mut self, name: &syn::Ident, visibility: &syn::Visibility) -> bool {
        let public = is_public(visibility);
        if public {
            self.public.insert(name.to_string());
        }
        public
    }

    fn part(&mut self, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.in_part, true);
        visit(self);
        self.in_part = before;
    }
}

impl<'ast> Visit<'ast> for Surface {
    fn visit_ident(&mut self, name: &'ast syn::Ident) {
        if self.in_part {
            self.parts.insert(name.to_string());
        }
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.visit_generics(&signature.generics);
        for input in &signature.inputs {
            if let syn::FnArg::Typed(input) = input {
                self.visit_type(&input.ty);
            }
        }
        self.visit_return_type(&signature.output);
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_block(&mut self, _: &'ast syn::Block) {}

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.publish(&item.ident, &item.vis);
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) && self.publish(&item.sig.ident, &item.vis) {
            self.part(|own| own.visit_signature(&item.sig));
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if self.publish(&item.ident, &item.vis) {
            self.part(|own| own.visit_generics(&item.generics));
            for field in item.fields.iter().filter(|field| is_public(&field.vis)) {
                self.part(|own| own.visit_type(&field.ty));
            }
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if self.publish(&item.ident, &item.vis) {
            self.part(|own| item.variants.iter().for_each(|variant| own.visit_variant(variant)));
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if self.publish(&item.ident, &item.vis) {
            self.part(|own| item.items.iter().for_each(|item| own.visit_trait_item(item)));
        }
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        if self.publish(&item.ident, &item.vis) {
            self.part(|own| own.visit_type(&item.ty));
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if self.publish(&item.ident, &item.vis) {
            self.part(|own| own.visit_type(&item.ty));
        }
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        if self.publish(&item.ident, &item.vis) {
            self.part(|own| own.visit_type(&item.ty));
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_for_tests(&item.attrs) {
            return;
        }
        if item.trait_.is_some() {
            // Names in an implementation of a trait are as public as the trait.
            return self.part(|own| visit::visit_item_impl(own, item));
        }
        for part in &item.items {
            match part {
                syn::ImplItem::Fn(part)
                    if !is_for_tests(&part.attrs) && self.publish(&part.sig.ident, &part.vis) =>
                {
                    self.part(|own| own.visit_signature(&part.sig));
                }
                syn::ImplItem::Const(part) if self.publish(&part.ident, &part.vis) => {
                    self.part(|own| own.visit_type(&part.ty));
                }
                _ => {}
            }
        }
    }

    /// Names in an exported macro are used wherever the macro is.
    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
            let text = item.mac.tokens.to_string();
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            self.parts.extend(words.map(str::to_owned));
        }
    }
}

/// The words in all Rust files outside of each crate, without comments.
fn words_outside() -> BTreeMap<String, BTreeSet<String>> {
    let words = |file: &std::path::PathBuf| -> BTreeSet<String> {
        let text = std::fs::read_to_string(file).unwrap();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let words = lines.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_')));
        words.map(str::to_owned).collect()
    };
    let of = |name: &String| crate_files(name).values().flat_map(words).collect::<BTreeSet<_>>();
    let inside: BTreeMap<String, BTreeSet<String>> =
        crates().into_iter().map(|name| (name.clone(), of(&name))).collect();
    let beside = ["src", "tests", "benches", "examples"].map(|folder| root().join(folder));
    let beside: BTreeSet<String> =
        beside.iter().flat_map(|folder| rust_files(folder)).flat_map(|file| words(&file)).collect();
    let outside = |name: &String| {
        let others = inside.iter().filter(|(other, _)| *other != name);
        others.flat_map(|(_, words)| words.clone()).chain(beside.clone()).collect()
    };
    inside.keys().map(|name| (name.clone(), outside(name))).collect()
}

#[test]
fn what_is_public_is_named_by_another_crate() {
    let outside = words_outside();
    let mut found = Vec::new();
    for name in crates() {
        let files: BTreeMap<String, Surface> = production_of(&name)
            .into_iter()
            .map(|(path, source)| (path, Surface::read(&source)))
            .collect();
        let parts: BTreeSet<&String> = files.values().flat_map(|surface| &surface.parts).collect();
        for (path, surface) in &files {
            let unnamed = surface
                .public
                .iter()
                .filter(|item| !outside[&name].contains(*item) && !parts.contains(item));
            found.extend(unnamed.map(|item| format!("crates/{name}/src/{path}: {item}")));
        }
    }
    assert!(found.is_empty(), "public for nobody: {found:#?}");
}

#[test]
fn the_surface_of_a_file_is_found() {
    let surface = Surface::read(
        "pub struct Open { pub of: Part, own: Hidden } struct Own; \
         impl Open { pub fn go(self) -> Taken { Body } fn stay(self) -> Own {} } \
         pub(crate) fn near() {} impl Trait for Own { type Made = Made; } pub mod inner {} \
         #[cfg(test)] pub mod tests {}",
    );
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let public: BTreeSet<String> = named(&["Open", "go", "inner"]);
    assert_eq!(surface.public, public);
    let parts: BTreeSet<String> = named(&["Part", "Taken", "Made"]);
    assert!(parts.is_subset(&surface.parts), "{:?}", surface.parts);
    let hidden: BTreeSet<String> = named(&["Hidden", "Body", "near", "stay"]);
    assert!(hidden.is_disjoint(&surface.parts), "{:?}", surface.parts);
}

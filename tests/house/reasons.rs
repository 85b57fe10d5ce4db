//! Every limit has its reason. A constant of production code that is a number or a time has a doc
//! comment on what it bounds, in which unit, and why.

use syn::visit::{self, Visit};

use super::files::{is_for_tests, production};

/// Types of numbers and times.
const NUMBERS: [&str; 15] = [
    "Duration", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32",
    "u64", "u128", "usize",
];

/// Whether a type is a number, a time, or a tuple or array of them.
fn is_number(kind: &syn::Type) -> bool {
    match kind {
        syn::Type::Path(path) => path
            .path
            .segments
            .last()
            .is_some_and(|last| NUMBERS.iter().any(|number| last.ident == number)),
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty() && tuple.elems.iter().all(is_number),
        syn::Type::Array(array) => is_number(&array.elem),
        _ => false,
    }
}

/// Whether there is a doc comment with text.
fn says_why(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::NameValue(syn::MetaNameValue {
            value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }),
            ..
        }) => attribute.path().is_ident("doc") && !text.value().trim().is_empty(),
        _ => false,
    })
}

/// Collects the names of constants without a reason.
#[derive(Default)]
struct Unreasoned(Vec<String>);

impl Unreasoned {
    fn judge(&mut self, name: &syn::Ident, kind: &syn::Type, attributes: &[syn::Attribute]) {
        if is_number(kind) && !says_why(attributes) && !is_for_tests(attributes) {
            self.0.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Unreasoned {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.judge(&item.ident, &item.ty, &item.attrs);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.judge(&item.ident, &item.ty, &item.attrs);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.judge(&item.ident, &item.ty, &item.attrs);
    }

    fn visit_trait_item_const(&mut self, item: &'ast syn::TraitItemConst) {
        self.judge(&item.ident, &item.ty, &item.attrs);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }
}

fn unreasoned(source: &str) -> Vec<String> {
    let mut found = Unreasoned::default();
    found.visit_file(&syn::parse_file(source).unwrap());
    found.0
}

#[test]
fn every_limit_says_why() {
    let found: Vec<String> = production()
        .iter()
        .flat_map(|(path, source)| {
            unreasoned(source).into_iter().map(move |name| format!("{path}: {name}"))
        })
        .collect();
    assert!(found.is_empty(), "without a doc comment:\n{}", found.join("\n"));
}

#[test]
fn planted_limits_without_a_reason_are_found() {
    let planted = "const PLAIN: usize = 1; // No doc comment.\n\
        #[doc(hidden)] pub const HIDDEN: Duration = Duration::ZERO;\n\
        /// \nstatic EMPTY: f64 = 1.0;\n\
        mod inner { pub(super) const PAIR: (u64, std::time::Duration) = LEASE; }\n\
        impl Thing { const OWN: [u8; 2] = [1, 2]; }\n\
        trait Kind { const OF: i64; }\n\
        fn f() { const LOCAL: u32 = 1; }";
    assert_eq!(unreasoned(planted), ["PLAIN", "HIDDEN", "EMPTY", "PAIR", "OWN", "OF", "LOCAL"]);
    let fine = "/// Bytes of a head.\nconst HEAD: usize = 1;\n\
        const NAME: &str = \"a\"; const TABLE: [(&str, u64); 0] = [];\n\
        #[cfg(test)] const SEED: u64 = 1;\n\
        #[cfg(test)] mod tests { const CASES: u32 = 9; }";
    assert_eq!(unreasoned(fine), [""; 0]);
}

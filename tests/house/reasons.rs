//! Each limit stands in the file that uses it, with its reason: the doc comment of a constant that
//! is a whole number or a time.

use syn::visit::{self, Visit};

use super::files::{is_for_tests, production};

/// Types of limits.
const NUMBERS: [&str; 11] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "Duration"];

/// Names of one file's limits that have no reason.
#[derive(Default)]
struct Unexplained(Vec<String>);

impl Unexplained {
    fn read(source: &str) -> Vec<String> {
        let mut reader = Self::default();
        reader.visit_file(&syn::parse_file(source).unwrap());
        reader.0
    }

    fn judge(&mut self, name: &syn::Ident, of: &syn::Type, attributes: &[syn::Attribute]) {
        let syn::Type::Path(path) = of else { return };
        let last = path.path.segments.last().unwrap();
        let is_limit = NUMBERS.iter().any(|number| last.ident == number);
        let explained = attributes.iter().any(|attribute| attribute.path().is_ident("doc"));
        if is_limit && !explained {
            self.0.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Unexplained {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.judge(&item.ident, &item.ty, &item.attrs);
        visit::visit_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.judge(&item.ident, &item.ty, &item.attrs);
        visit::visit_item_static(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.judge(&item.ident, &item.ty, &item.attrs);
        visit::visit_impl_item_const(self, item);
    }
}

#[test]
fn every_limit_has_a_reason() {
    let of = |(path, source): (&String, &String)| {
        let found = Unexplained::read(source).into_iter();
        found.map(|name| format!("{path}: {name}")).collect::<Vec<_>>()
    };
    let unexplained: Vec<String> = production().iter().flat_map(of).collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}

#[test]
fn limits_without_a_reason_are_found() {
    for (source, limits) in [
        ("const LIMIT: usize = 1;", 1),
        ("/// Bytes of a name.\nconst LIMIT: usize = 1;", 0),
        ("static WAIT: std::time::Duration = Duration::from_secs(1);", 1),
        ("impl S { pub const LIMIT: u64 = 1; }", 1),
        ("fn f() { const LIMIT: i64 = 1; }", 1),
        ("/// Longest wait.\nconst WAIT: Duration = Duration::from_secs(1);", 0),
        ("const NAME: &str = \"name\"; fn f() { wait(Duration::from_secs(limit)); }", 0),
        ("#[cfg(test)] mod tests { const LIMIT: usize = 1; }", 0),
    ] {
        assert_eq!(Unexplained::read(source).len(), limits, "{source}");
    }
}

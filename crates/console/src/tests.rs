//! Checks of the table of pages.

use std::collections::BTreeSet;

use super::PAGES;
use super::layout::TABS;
use rerouter_base::interface::Surface;
use rerouter_core::api::{Policy, ROUTES};

#[test]
fn only_these_pages_are_open() {
    let open: Vec<String> = PAGES
        .iter()
        .filter(|page| page.policy.is_open())
        .map(|page| format!("{} {}", page.method, page.path))
        .collect();
    assert_eq!(
        open,
        [
            "GET /",
            "GET /console",
            "GET /console/assets/{digest}/{name}",
            "GET /console/sign-in",
            "POST /console/sign-in",
            "GET /console/first-admin",
            "POST /console/first-admin",
        ]
    );
    assert!(PAGES.iter().all(|page| matches!(page.policy, Policy::Open | Policy::Any)));
}

#[test]
fn pages_are_the_consoles_and_stand_once() {
    let mut seen = BTreeSet::new();
    for page in PAGES {
        assert!(page.path == "/" || Surface::of(page.path) == Surface::Console, "{}", page.path);
        assert!(seen.insert((page.method.as_str(), page.path)), "{}", page.path);
        assert!(ROUTES.iter().all(|route| route.path != page.path), "{}", page.path);
    }
}

#[test]
fn each_tab_has_a_page_of_the_console() {
    assert!(TABS.iter().all(|(_, path, ..)| path.starts_with("/console/")));
}

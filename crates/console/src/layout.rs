//! The layout that all pages share.

use bytes::Bytes;
use http::{Response, StatusCode};
use maud::{DOCTYPE, Markup, html};

use super::{answer, assets};
use rerouter_access::auth::Principal;

/// An entry of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Overview,
    Captures,
    Routing,
    Keys,
    Users,
    Agents,
    Nodes,
    Gateways,
    Audit,
    Playground,
}

/// The tab, its path, its label, and whether only admins may use it.
pub(super) type TabRow = (Tab, &'static str, &'static str, bool);

#[rustfmt::skip]
pub(super) const TABS: [TabRow; 10] = [
    (Tab::Overview,   "/console/",           "Overview",   false),
    (Tab::Captures,   "/console/captures",   "Captures",   false),
    (Tab::Routing,    "/console/routing",    "Routing",    true),
    (Tab::Keys,       "/console/keys",       "Keys",       false),
    (Tab::Users,      "/console/users",      "Users",      true),
    (Tab::Agents,     "/console/agents",     "Agents",     false),
    (Tab::Nodes,      "/console/nodes",      "Nodes",      true),
    (Tab::Gateways,   "/console/gateways",   "Gateways",   true),
    (Tab::Audit,      "/console/audit",      "Audit",      true),
    (Tab::Playground, "/console/playground", "Playground", false),
];

/// Settings of htmx: it runs no code from attributes, adds no style elements, and shows error
/// answers like all others.
const HTMX: &str = r#"{"allowEval":false,"includeIndicatorStyles":false,"historyCacheSize":0,
"selfRequestsOnly":true,"responseHandling":[{"code":"204","swap":false},{"code":"...","swap":true}]
}"#;

pub(super) fn page(
    status: StatusCode,
    who: &Principal,
    tabs: &[TabRow],
    tab: Option<Tab>,
    title: &str,
    main: &Markup,
) -> Response<Bytes> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="htmx-config" content=(HTMX);
                title { (title) " · rerouter" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href=(assets::href("console.css"));
                @for script in ["htmx.js", "uplot.js", "console.js"] {
                    script src=(assets::href(script)) defer {}
                }
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    a.brand href="/console/" { "rerouter" }
                    @if let Principal::User { user, .. } = who {
                        (navigation(tabs, tab))
                        div.account {
                            a href="/console/password" title="Change the password" { (user.email) }
                            form method="post" action="/console/sign-out" {
                                button.quiet { "Sign out" }
                            }
                        }
                    }
                }
                main #main tabindex="-1" {
                    h1 { (title) }
                    div #content { (main) }
                }
                div #messages role="status" aria-live="polite" {}
            }
        }
    };
    answer::html(status, page)
}

fn navigation(tabs: &[TabRow], tab: Option<Tab>) -> Markup {
    html! {
        nav aria-label="Pages" {
            ul {
                @for (own, path, label, _) in tabs {
                    li {
                        a href=(path) aria-current=[(tab == Some(*own)).then_some("page")] {
                            (label)
                        }
                    }
                }
            }
        }
    }
}

//! Corrections of estimates, for the names in whole documents.

use crate::config;
use rerouter_routing::{EstimateCorrection, Routing};

fn routing(model: &str) -> Routing {
    let text = format!(
        "providers: {{ p: {{ protocol: mock }} }}\n\
         recipes: {{ r: {{ rules: [{{ name: x, targets: [{{ target: p/{model} }}] }}] }} }}\n\
         aliases: {{ auto: r }}\n"
    );
    let server = config::read_server("server.yaml", "", &|_| None).unwrap();
    config::read_routing("routing.yaml", &text, &server, &|_| None, None)
        .unwrap_or_else(|problems| panic!("{problems:?}"))
}

#[test]
fn it_follows_what_is_counted_within_its_bounds() {
    let (bias, document) = (EstimateCorrection::default(), routing("m"));
    assert_eq!(bias.correct(&document, "auto", 1000), 1000);
    bias.learn(&document, "auto", 10, 13);
    assert_eq!(bias.correct(&document, "auto", 1000), 1003, "one short prompt says little");
    for _ in 0..200 {
        bias.learn(&document, "auto", 400, 520);
    }
    assert!(
        (1295..=1300).contains(&bias.correct(&document, "auto", 1000)),
        "{}",
        bias.correct(&document, "auto", 1000)
    );
    assert_eq!(bias.correct(&document, "p/m", 1000), 1000, "each name has its own");
    for _ in 0..200 {
        bias.learn(&document, "auto", 10, 100_000);
        bias.learn(&document, "p/m", 100_000, 10);
    }
    assert_eq!(
        (bias.correct(&document, "auto", 1000), bias.correct(&document, "p/m", 1000)),
        (2000, 500)
    );
    bias.learn(&document, "auto", 0, 5);
    bias.learn(&document, "auto", 5, 0);
    assert_eq!(bias.correct(&document, "auto", 1000), 2000);
}

#[test]
fn only_names_of_the_document_are_kept() {
    let (bias, document) = (EstimateCorrection::default(), routing("m"));
    for name in ["auto", "p/m", "p/unknown", "r", ""] {
        bias.learn(&document, name, 1000, 3000);
    }
    assert_eq!(bias.known(), 2);
    bias.retain(&routing("other"));
    assert_eq!(
        (bias.correct(&document, "auto", 1000), bias.correct(&document, "p/m", 1000), bias.known()),
        (2000, 1000, 1)
    );
}

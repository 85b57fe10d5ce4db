//! Routing documents: a valid one, and every mistake.

use super::*;
use rerouter_base::usage_kind::UsageKind;

#[test]
fn the_demo_document_runs() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    let routing = routing(demo_routing()).unwrap_or_else(|problems| panic!("{}", shown(&problems)));
    shared(&routing);
    let demo = routing.provider("demo").unwrap();
    assert_eq!(
        (demo.protocol, demo.base.authority().as_str(), demo.base.path.as_str()),
        (Protocol::Mock, "127.0.0.1:4000", "/20/v1")
    );
    assert_eq!(
        routing.targets().map(|target| &*target.name).collect::<Vec<_>>(),
        ["demo/large", "demo/small", "demo/echo"]
    );
    assert_eq!(
        routing.aliases().map(|(name, recipe)| (name, recipe.name())).next(),
        Some(("auto", "balanced"))
    );
    assert_eq!(routing.alias("auto").unwrap().retry, RetryPolicy::default());
    assert_eq!(
        routing.target("demo/small").unwrap().prices.as_ref().unwrap().base.get(UsageKind::Output),
        Some(2.0)
    );
}

#[test]
fn every_mistake_of_a_routing_document_is_found_at_once() {
    let text = "\
timezone: Europe/Berlinn
providers:
  openai: { protocol: openai, base_url: ftp://x, api_key: '${HOME}', \
    breaker: { error_rate: 0.5, opens: 1s, open: 1h } }
  demo: { protocol: mock, latency: 90s, api_key: x }
  direct: { protocol: mock }
  claude: { protocol: anthropic }
models:
  opnai/x: { input_per_mtok: -1, capabilities: [visoin] }
recipes:
  balanced:
    rules:
      - { name: a, when: 'promt_tokens > 1', targets: [{ target: openai/m }, { target: openai/m }] }
      - { name: a, strategy: weighted, targets: [{ target: demo/m, weight: 0 }] }
      - { name: c, when: stream, stragety: x, targets: [{ target: demo/m, weight: 2 }, \
    { target: nodes/q }] }
    retry: { attempts: 99, on: [429, 4xx], budget: 20 }
    shadow: { target: dem/m, percent: 101, rate: 1 }
  empty: { rules: [], shadow: { target: openai/m } }
  headers: { rules: [{ name: x, when: \"headers['x-teir'] == 'a'\", \
    targets: [{ target: openai/m }] }, { name: y, strategy: sticky, targets: [{ target: demo }] }] }
aliases: { auto: balancd, agent/x: balanced }
keywords: { code: [refactor, ' ', Refactor], 'a b': [x], none: [], n: [1] }
";
    let wanted = "\
r.yaml:1:11: timezone: unknown time zone (an IANA name such as UTC or Europe/Berlin)
r.yaml:3:41: providers.openai.base_url: the URL must begin with https:// or http:// (for example \
    `https://api.example.com/v1`)
r.yaml:3:59: providers.openai.api_key: the variable `HOME` matches no pattern of \
    `routing.env_allow` in the server document (`${NAME}` must be set and allowed; \
    `${NAME:-default}` may be unset)
r.yaml:3:93: providers.openai.breaker.error_rate: must be a share from 1% to 100% (for example \
    `20%`)
r.yaml:3:98: providers.openai.breaker.opens: unknown key (did you mean `open`?)
r.yaml:3:115: providers.openai.breaker.open: must be at most 10m (for example `30s`)
r.yaml:4:36: providers.demo.latency: more than 60 seconds (for example `20ms`)
r.yaml:4:50: providers.demo.api_key: a `mock` provider has none: it is part of this process \
    (remove it)
r.yaml:5:3: providers.direct: `direct` is a reserved name (choose another)
r.yaml:6:3: providers.claude: `base_url` is missing (base_url: https://api.anthropic.com)
r.yaml:8:3: models[\"opnai/x\"]: unknown provider `opnai` (did you mean `openai`?)
r.yaml:8:30: models[\"opnai/x\"].input_per_mtok: a price cannot be negative (leave out a price \
    that is unknown)
r.yaml:8:49: models[\"opnai/x\"].capabilities[0]: must be one of `tools`, `vision`, `json`, \
    `audio` (did you mean `vision`?)
r.yaml:12:26: recipes.balanced.rules[0].when: unknown signal `promt_tokens` (did you mean \
    `prompt_tokens`?)
r.yaml:12:88: recipes.balanced.rules[0].targets[1].target: duplicate target `openai/m` (remove one \
    of them)
r.yaml:13:17: recipes.balanced.rules[1].name: duplicate rule name `a` (choose another name)
r.yaml:13:76: recipes.balanced.rules[1].targets[0].weight: the weights of this rule sum to 0 (give \
    one target a weight above 0)
r.yaml:14:17: recipes.balanced.rules[2].name: never reached: `a` before it always matches (move it \
    up, or remove it)
r.yaml:14:34: recipes.balanced.rules[2].stragety: unknown key (did you mean `strategy`?)
r.yaml:14:83: recipes.balanced.rules[2].targets[0].weight: `priority` does not use weights \
    (strategy: weighted)
r.yaml:15:24: recipes.balanced.retry.attempts: must be from 1 to 16 (leave it out for the default)
r.yaml:15:38: recipes.balanced.retry.on[1]: must be one of `connect`, `timeout`, `429`, \
    `5xx` (did you mean `5xx`?)
r.yaml:15:52: recipes.balanced.retry.budget: must be a share from 0% to 1000% (for example `20%`)
r.yaml:16:23: recipes.balanced.shadow.target: unknown provider `dem` (did you mean `demo`?)
r.yaml:16:39: recipes.balanced.shadow.percent: must be from 0 to 100 (for example `1`, \
    or `0.1` for one request in a thousand)
r.yaml:16:44: recipes.balanced.shadow.rate: unknown key (known: target, percent)
r.yaml:17:3: recipes.empty: a recipe needs at least one rule (for example `{ name: default, \
    targets: [{ target: openai/gpt-5-mini }] }`)
r.yaml:17:31: recipes.empty.shadow: `percent` is missing (add `percent: …` here)
r.yaml:18:39: recipes.headers.rules[0].when: the header `x-teir` is not in \
    `routing.signal_headers` of the server document (did you mean `x-tier`?)
r.yaml:18:110: recipes.headers.rules[1].name: a `sticky` rule needs a `key` (for example \
    `key: user.id`)
r.yaml:18:151: recipes.headers.rules[1].targets[0].target: a target is `provider/model` (for \
    example `openai/gpt-5-mini`)
r.yaml:19:18: aliases.auto: unknown recipe `balancd` (did you mean `balanced`?)
r.yaml:19:27: aliases[\"agent/x\"]: `agent/x` begins with a reserved name (choose another)
r.yaml:20:30: keywords.code[1]: a keyword must not be blank (remove it)
r.yaml:20:35: keywords.code[2]: duplicate keyword (case is ignored) (remove one of them)
r.yaml:20:46: keywords[\"a b\"]: a keyword set's name is 1 to 64 letters, digits, `-`, \
    `_` or `.` (for example `main`)
r.yaml:20:58: keywords.none: a keyword set needs at least one word (add a word, or remove it)
r.yaml:20:68: keywords.n: a keyword set needs at least one word (add a word, or remove it)
r.yaml:20:72: keywords.n[0]: must be text, not a whole number (put it in quotes)
";
    similar(&routing_problems(text), wanted);
}

#[test]
fn each_mistake_is_told_by_itself() {
    let provider = |more: &str| {
        format!("providers: {{ p: {{ protocol: openai, base_url: 'http://h', {more} }} }}")
    };
    let recipe = |more: &str| {
        format!("providers: {{ d: {{ protocol: mock }} }}\nrecipes: {{ r: {{ {more} }} }}")
    };
    for (text, wanted) in [
        (
            "providers: { p: { protocol: openai, base_url: api.openai.com/v1 } }".to_owned(),
            "p.base_url: the URL is not a URL",
        ),
        (
            provider("api_key: '${ADMIN_API_KEY}'"),
            "a routing document must not use the variable `ADMIN_API_KEY`",
        ),
        (provider("timeouts: { connect: 5 }"), "timeouts.connect: must be a duration"),
        (provider("headers: { host: x }"), "headers.host: is set by the gateway"),
        (
            recipe("rules: [{ name: a, when: 'stream &&', targets: [{ target: d/m }] }]"),
            "rules[0].when: not an expression, at character 10: unexpected end",
        ),
        (recipe("rules: [{ name: a, targets: [] }]"), "a rule needs at least one target"),
        (
            recipe(
                "rules: [{ name: a, strategy: sticky, key: headers, targets: [{ target: d/m }] }]",
            ),
            "rules[0].key: ",
        ),
        (
            recipe("rules: [{ name: a, targets: [{ target: d/m }] }], retry: { on: [503] }"),
            "retry.on[0]: must be text, not a whole number",
        ),
    ] {
        let told = routing_problems(&text);
        assert!(told.contains(wanted), "{text}: {told}");
    }
}

#[test]
fn the_last_rule_must_always_match() {
    let rule = |when: &str| format!("{{ name: r, {when} targets: [{{ target: d/m }}] }}");
    let document = |rules: &str| {
        format!(
            "providers: {{ d: {{ protocol: mock }} }}\nrecipes: {{ r: {{ rules: [{rules}] }} }}\n\
             aliases: {{}}"
        )
    };
    assert!(routing(&document(&rule(""))).is_ok());
    assert!(
        routing_problems(&document(&rule("when: stream,")))
            .contains("the last rule must have no `when`")
    );
    let same = [
        rule("when: stream,"),
        rule("when: stream,").replace("name: r", "name: s"),
        rule("").replace("name: r", "name: t"),
    ]
    .join(",");
    let wanted = "rules[1].when: never reached: `r` before it has the same `when` (change it, or \
        remove the rule)";
    assert!(routing_problems(&document(&same)).contains(wanted));
    // Blanks around a condition are ignored.
    let spaced = same.replacen("when: stream", "when: ' stream '", 1);
    assert!(routing_problems(&document(&spaced)).contains(wanted));
    // Only the texts of conditions are compared, not their meanings.
    let narrower = same.replacen("when: stream", "when: stream || tools > 0", 1);
    assert!(routing(&document(&narrower)).is_ok());
    assert!(routing_problems(&document(&rule("when: true,"))).contains("uses no signal"));
}

#[test]
fn keys_belong_to_sticky_rules() {
    let document = |rule: &str| {
        format!(
            "providers: {{ d: {{ protocol: mock }} }}\n\
             recipes: {{ r: {{ rules: [{{ name: r, {rule} targets: [{{ target: d/m }}] }}] }} }}\n\
             aliases: {{}}"
        )
    };
    for key in ["user.id", "headers['x-tier']", "messages", "stream", "key.id + '/' + model"] {
        assert!(routing(&document(&format!("strategy: sticky, key: \"{key}\","))).is_ok(), "{key}");
    }
    for (rule, wanted) in [
        (
            "key: user.id,",
            "r.yaml:2:41: recipes.r.rules[0].key: `priority` does not use a key (strategy: sticky)",
        ),
        (
            "strategy: weighted, key: user.id,",
            "recipes.r.rules[0].key: `weighted` does not use a key (strategy: sticky)",
        ),
        ("strategy: sticky,", "recipes.r.rules[0].name: a `sticky` rule needs a `key`"),
        (
            "strategy: sticky, key: \"'all'\",",
            "recipes.r.rules[0].key: the expression uses no signal",
        ),
        (
            "strategy: sticky, key: key.labels,",
            "recipes.r.rules[0].key: the expression gives labels, which cannot be a key",
        ),
        (
            "strategy: sticky, key: user.ip,",
            "recipes.r.rules[0].key: unknown field of `user`: `ip`",
        ),
        (
            "strategy: sticky, key: \"headers['x-teir']\",",
            "recipes.r.rules[0].key: the header `x-teir` is not in `routing.signal_headers`",
        ),
        (
            "strategy: stikcy, key: user.id,",
            "recipes.r.rules[0].strategy: must be one of `priority`, `weighted`, `least_latency`, \
             `least_busy`, `cheapest`, `sticky` (did you mean `sticky`?)",
        ),
    ] {
        let problems = routing_problems(&document(rule));
        assert!(problems.contains(wanted) && problems.lines().count() == 1, "{rule}: {problems}");
    }
}

#[test]
fn keyword_sets_are_known_by_name() {
    let document = |when: &str| {
        format!(
            "providers: {{ d: {{ protocol: mock }} }}\n\
             keywords: {{ code: [refactor], law: [contract] }}\nrecipes: {{ r: {{ rules: [\n\
             {{ name: a, when: \"{when}\", targets: [{{ target: d/m }}] }}, {{ name: b, \
             targets: [{{ target: d/m }}] }}] }} }}\naliases: {{}}"
        )
    };
    let routing = routing(&document("'code' in keywords || language == 'de'"))
        .unwrap_or_else(|problems| panic!("{}", shown(&problems)));
    assert_eq!(routing.keywords.names().collect::<Vec<_>>(), ["code", "law"]);
    assert!(routing.signals.keywords && routing.signals.language);
    for (when, wanted) in [
        ("'coed' in keywords", "unknown keyword set `coed` (did you mean `code`?)"),
        (
            "stream && !('medicine' in keywords)",
            "unknown keyword set `medicine` (it is not in `keywords`)",
        ),
        ("'code' in keyword", "unknown signal `keyword` (did you mean `keywords`?)"),
    ] {
        let problems = routing_problems(&document(when));
        assert!(
            problems.starts_with(&format!("r.yaml:4:18: recipes.r.rules[0].when: {wanted}")),
            "{problems}"
        );
    }
    let plain = "providers: { d: { protocol: mock } }\nkeywords: { code: [refactor] }\n\
        recipes: {}\naliases: {}";
    assert_eq!(self::routing(plain).unwrap().signals, Default::default());
}

#[test]
fn recipes_and_aliases_are_written_out() {
    let providers = "providers: { d: { protocol: mock } }\n";
    let missing = |key: &str, line| {
        format!(
            "r.yaml:{line}:1: `{key}` is missing or empty (write `{key}: {{}}` if there are none)"
        )
    };
    for (text, wanted) in [
        ("", vec![missing("recipes", 1), missing("aliases", 1)]),
        ("recipes:\n", vec![missing("aliases", 1), missing("recipes", 2)]),
        ("recipes: {}\naliases: # none yet\n", vec![missing("aliases", 3)]),
        ("aliases: null\nrecipes: {}\n", vec![missing("aliases", 2)]),
    ] {
        similar(&routing_problems(&format!("{providers}{text}")), &wanted.join("\n"));
    }
    assert!(routing(&format!("{providers}recipes: {{}}\naliases: {{}}\n")).is_ok());
}

#[test]
fn a_routing_document_that_says_nothing_is_not_taken() {
    for text in ["", "# nothing yet\n", "{}", "---\n"] {
        assert!(routing_problems(text).contains("the document is empty"), "{text:?}");
    }
}

#[test]
fn what_is_said_of_a_provider_has_to_fit_it() {
    let text = "\
providers:
  plain: { protocol: openai, base_url: 'http://x', http2: true, ca: /nonexistent, api_key: sk-a, \
    api_keys: [sk-a, '${OPENAI_API_KEY}'] }
  none: { protocol: openai, base_url: 'https://x', api_keys: [], \
    health: { path: well, interval: 1ms }, stream_usage: always }
  demo: { protocol: mock, http2: false, health: { path: / }, max_concurrency: 0, api_keys: [sk-b] }
  both: { protocol: openai, base_url: 'https://x', api_keys: [sk-a], \
    headers: { authorization: x }, health: { interval: 5s } }
recipes: {}
aliases: {}
";
    let wanted = "\
r.yaml:2:59: providers.plain.http2: HTTP/2 needs https (base_url: https://…)
r.yaml:2:69: providers.plain.ca: the file cannot be read: No such file or directory (os error 2) \
    (the path of a PEM file of certificates on the machine of the gateway)
r.yaml:2:92: providers.plain.api_key: `api_keys` is set as well (keep one of the two)
r.yaml:2:92: providers.plain.api_key: repeats an earlier key (remove one of them)
r.yaml:3:62: providers.none.api_keys: must have at least one key (for example \
    `[\"${OPENAI_API_KEY}\"]`)
r.yaml:3:82: providers.none.health.path: must be a path (from the root of the host, \
    for example `/v1/models`)
r.yaml:3:98: providers.none.health.interval: must be from 1s to 1h (for example `30s`)
r.yaml:3:119: providers.none.stream_usage: must be one of `auto`, `inject`, \
    `never` (for example `auto`)
r.yaml:4:34: providers.demo.http2: a `mock` provider has none: it is part of this process (remove \
    it)
r.yaml:4:49: providers.demo.health: a `mock` provider has none: it is part of this process (remove \
    it)
r.yaml:4:79: providers.demo.max_concurrency: must be from 1 to 1000000 (leave it out for the \
    default)
r.yaml:4:93: providers.demo.api_keys[0]: a `mock` provider has none: it is part of this process \
    (remove it)
r.yaml:5:81: providers.both.headers.authorization: `api_key` sets this header already (keep one of \
    the two)
r.yaml:5:109: providers.both.health: `path` is missing (add `path: …` here)
";
    similar(&routing_problems(text), wanted);
}

//! The lines of a report.

use serde_json::json;

use super::super::table::clean;
use super::super::terminal::{TextStyle, styled};
use rerouter_core::config::CheckReport;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DoctorState {
    Ok,
    Warn,
    Fail,
}

impl DoctorState {
    fn word(self) -> &'static str {
        match self {
            DoctorState::Ok => "ok",
            DoctorState::Warn => "warn",
            DoctorState::Fail => "fail",
        }
    }

    fn style(self) -> TextStyle {
        match self {
            DoctorState::Ok => TextStyle::Good,
            DoctorState::Warn => TextStyle::Doubtful,
            DoctorState::Fail => TextStyle::Bad,
        }
    }
}

struct DoctorLine {
    check: String,
    state: DoctorState,
    detail: String,
    remedy: String,
}

#[derive(Default)]
pub(super) struct DoctorReport(Vec<DoctorLine>);

impl DoctorReport {
    pub(super) fn ok(&mut self, check: &str, detail: &str) {
        self.add(check, DoctorState::Ok, detail, "");
    }

    pub(super) fn warn(&mut self, check: &str, detail: &str, remedy: &str) {
        self.add(check, DoctorState::Warn, detail, remedy);
    }

    pub(super) fn fail(&mut self, check: &str, detail: &str, remedy: &str) {
        self.add(check, DoctorState::Fail, detail, remedy);
    }

    fn add(&mut self, check: &str, state: DoctorState, detail: &str, remedy: &str) {
        let (check, detail) = (check.to_owned(), detail.to_owned());
        self.0.push(DoctorLine { check, state, detail, remedy: remedy.to_owned() });
    }

    pub(super) fn documents(&mut self, checked: &CheckReport) {
        let remedy = "see `rerouter check`";
        for problem in &checked.problems {
            self.fail("documents", &problem.to_string(), remedy);
        }
        for warning in &checked.warnings {
            self.warn("documents", &warning.to_string(), remedy);
        }
        if let Some(why) = &checked.unchecked {
            self.warn("documents", &format!("the routing document was not checked: {why}"), remedy);
        }
        checked.good.iter().for_each(|good| self.ok("documents", good));
    }

    pub(super) fn has_failed(&self) -> bool {
        self.0.iter().any(|line| line.state == DoctorState::Fail)
    }

    pub(super) fn text(&self, as_json: bool) -> String {
        let line = |line: &DoctorLine| {
            let DoctorLine { check, state, detail, remedy } = line;
            if as_json {
                let remedy = Some(remedy).filter(|remedy| !remedy.is_empty());
                let line = json!({
                    "check": check, "state": state.word(), "detail": detail, "remedy": remedy
                });
                return format!("{line}\n");
            }
            let word = styled(&format!("{:5}", state.word()), state.style());
            let remedy = match remedy.as_str() {
                "" => String::new(),
                remedy => format!("\n{:19}{}", "", clean(remedy)),
            };
            format!("{word} {check:12} {}{remedy}\n", clean(detail))
        };
        self.0.iter().map(line).collect()
    }
}

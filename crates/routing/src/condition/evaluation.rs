//! The environment in which the expressions of a decision are evaluated.

use std::sync::{Arc, OnceLock};

use cel::{Context, Env};

use super::pattern;
use super::signals::Signals;

pub struct EvaluationContext<'a> {
    pub(super) context: Context<'a, 'a>,
}

impl<'a> EvaluationContext<'a> {
    /// Reads a signal from `facts` only when an expression names it.
    pub fn new(facts: &'a Signals<'a>) -> Self {
        static LIBRARY: OnceLock<Arc<Env>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            let mut library = Env::stdlib();
            // The standard library of this build has no `matches`. If a later version has it, that
            // version is used.
            let _exists = pattern::add_to(&mut library);
            Arc::new(library)
        });
        let mut context = Context::with_env(Arc::clone(library));
        context.set_variable_resolver(facts);
        EvaluationContext { context }
    }
}

//! What requests may use, and what they cost: rates, budgets, token counts, prices.

mod beyond;
mod billing;
mod budgets;
mod estimates;
mod histories;
mod holds;
mod labels;
mod leavers;
mod prices;
mod rates;
mod shared_budgets;
mod spellings;
mod stream_usage;
mod token_counts;
mod usage_kinds;

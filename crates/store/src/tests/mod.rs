//! The tests that hold for each database: one suite, which `suite!` runs on the stores that a
//! [`Bed`] opens. Tests for SQLite only are in `sqlite/tests.rs`.

pub(super) mod agents;
pub(super) mod audit;
pub(super) mod captures;
pub(super) mod documents;
pub(super) mod keys;
pub(super) mod mutations;
pub(super) mod nodes;
pub(super) mod opening;
pub(super) mod steps;
pub(super) mod usage;
pub(super) mod users;

use std::collections::{BTreeMap, HashMap, HashSet};

use super::sql::Transaction;
use super::steps::Base;
use super::*;
use crate::fixtures::{agent, key, node, session, user};
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::{KeyId, Random, UserId};
use rerouter_base::secret::SecretBytes;

/// An empty database for one test.
pub(super) trait Bed {
    const BASE: Base;

    async fn new() -> Self;

    /// Runs statements while no store has it open.
    async fn batch(&self, statements: &str);

    /// The result of [`check_takeover`].
    async fn check_takeover(&self) -> Result<()>;

    /// Opens the store in it, or opens it again after the previous store is dropped.
    async fn unlock<T: Send + 'static>(
        &self,
        unlock: impl FnOnce(&Opening<'_>) -> Result<(SecretBytes, T)> + Send + 'static,
    ) -> Result<(Store, T)>;

    async fn open(&self) -> Store {
        self.unlock(|_| Ok((SecretBytes::new([5; 32]), ()))).await.unwrap().0
    }
}

/// Runs each test of the suite in a new [`Bed`]. The macro takes the absolute path of the bed's
/// type. The compiler warns of a test that is not named here, as nothing uses it.
macro_rules! suite {
    ($bed:ty) => {
        $crate::tests::suite! { $bed:
            agents {
                agents_have_one_name_each_and_there_are_not_too_many
            }
            audit {
                a_row_is_there_exactly_when_its_change_is
                nothing_is_left_after_a_row_that_the_retention_deleted
                pages_and_filters_find_what_they_say
                rows_are_neither_changed_nor_taken_out
                rows_leave_by_age_and_by_number_in_steps
                rows_of_a_time_are_found_however_many_follow
            }
            captures {
                a_page_is_of_one_state_whatever_is_written_meanwhile
                a_page_looks_at_so_many_rows_and_the_next_goes_on_there
                a_segment_among_others_leaves_in_steps_and_takes_none_of_theirs
                captures_are_listed_newest_first_and_by_filter
                failures_are_found_among_any_number_of_others
                segments_are_known_with_what_is_left_in_them
                a_line_has_the_captures_of_its_keys_and_deletes_no_others
                the_copies_of_a_capture_end_whatever_they_say_of_each_other
            }
            documents {
                a_text_opens_under_its_key_and_for_its_revision
                the_document_that_was_made_live_last_is_live
            }
            keys {
                a_patch_is_decided_on_what_is_there
                a_rotation_keeps_the_secret_before_it_for_a_while
                a_taken_email_a_full_owner_and_an_ended_parent_are_refused
                descendants_end_and_are_narrowed_with_a_key
                every_field_comes_back_as_it_was
                of_keys_that_ended_only_the_newest_are_kept
                of_two_rotations_on_one_look_one_is_refused
                the_last_use_of_a_key_only_moves_on
            }
            mutations {
                a_failed_write_changes_nothing_and_nobody_hears_of_it
                a_panic_before_the_commit_ends_one_mutation
                a_start_reads_one_revision
                reads_fail_on_demand_and_a_start_reads_nevertheless
                revisions_are_in_the_order_of_commits
                what_was_answered_is_there_after_reopening
            }
            nodes {
                a_generation_ends_the_one_before_with_its_first_use
                a_node_has_one_epoch_at_a_time
                the_newest_events_of_each_node_are_remembered
            }
            opening {
                a_rewrap_is_durable_or_has_not_happened
                a_start_reads_the_live_document
            }
            steps {
                a_later_store_is_refused_unless_this_build_can_work_beside_it
                a_step_that_fails_leaves_the_store_as_it_was
                an_earlier_store_comes_forward_with_what_it_has
                rows_name_the_columns_of_their_tables_in_their_order
            }
            usage {
                a_sum_stops_at_its_bound
                holds_are_written_all_or_none
                all_that_hold_of_a_budget_hold_no_more_than_it
                usage_is_summed_by_a_label_of_its_key
                usage_is_summed_by_any_columns
                usage_is_summed_by_hour_and_by_five_minutes
            }
            users {
                a_session_begins_with_the_present_password_of_an_enabled_user
                a_user_keeps_the_newest_sessions
                of_two_changes_of_a_password_one_is_refused
                a_deleted_user_leaves_ended_keys_without_names
                of_two_first_admins_one_is_refused
                the_last_admin_stays_and_only_an_admin_makes_users
            }
        }
    };
    ($bed:ty: $($file:ident { $($test:ident)* })*) => {
        $(mod $file {
            $(#[tokio::test]
            async fn $test() {
                let bed = <$bed as $crate::tests::Bed>::new().await;
                $crate::tests::$file::$test(&bed).await;
            })*
        })*
    };
}
pub(super) use suite;

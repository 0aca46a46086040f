//! RUBBoS: a bulletin board after Slashdot. Stories and comments of the last month lie apart from older ones.

use super::Pick::{Any, New, Same};
use super::Rows::{Fixed, PerMillion};
use super::Step::{Commit, Entry, Insert, List, Newest, Page, Row, Update, Whole};
use super::{
    ADD_NAME, ADD_USER, LOG_IN, MADE_BY, Sized, Spec, USERS, USERS_KEY, USERS_NAME, index, table, visit,
};

const STORIES: usize = 3;
const STORIES_KEY: usize = 4;
const STORIES_CATEGORY: usize = 5;
const OLD_STORIES: usize = 6;
const OLD_STORIES_KEY: usize = 7;
const OLD_STORIES_DAY: usize = 8;
const COMMENTS: usize = 9;
const COMMENTS_KEY: usize = 10;
const COMMENTS_STORY: usize = 11;
const OLD_COMMENTS: usize = 12;
const OLD_COMMENTS_KEY: usize = 13;
const OLD_COMMENTS_STORY: usize = 14;
const SUBMISSIONS: usize = 15;
const SUBMISSIONS_KEY: usize = 16;
const MODERATOR_LOG: usize = 17;
const MODERATOR_LOG_KEY: usize = 18;
const CATEGORIES: usize = 19;

/// Half a million users: for a million, twice as many rows as published.
const PUBLISHED_USERS: u64 = 500_000;
/// Twenty stories a day, one month and two years of them.
const RECENT: u64 = 20 * 30 * 2;
const OLD: u64 = 20 * 730 * 2;
/// Comments of a story.
const EACH: u64 = 35;
/// Comments that a story is shown with.
const SHOWN: u64 = 20;
/// Stories on a page.
const STORIES_OF_PAGE: u64 = 20;

const TABLES: [Sized; 20] = [
    table("users", PerMillion(1_000_000), 60),
    index("users_pkey", PerMillion(1_000_000)),
    index("users_nickname", PerMillion(1_000_000)),
    table("stories", PerMillion(RECENT), 4),
    index("stories_pkey", PerMillion(RECENT)),
    index("stories_category", PerMillion(RECENT)),
    table("old_stories", PerMillion(OLD), 4),
    index("old_stories_pkey", PerMillion(OLD)),
    index("old_stories_day", PerMillion(OLD)),
    table("comments", PerMillion(EACH * RECENT), 16),
    index("comments_pkey", PerMillion(EACH * RECENT)),
    index("comments_story", PerMillion(EACH * RECENT)),
    table("old_comments", PerMillion(EACH * OLD), 16),
    index("old_comments_pkey", PerMillion(EACH * OLD)),
    index("old_comments_story", PerMillion(EACH * OLD)),
    table("submissions", PerMillion(RECENT), 4),
    index("submissions_pkey", PerMillion(RECENT)),
    table("moderator_log", PerMillion(RECENT), 200),
    index("moderator_log_pkey", PerMillion(RECENT)),
    table("categories", Fixed(34), 140),
];

pub(super) const SPEC: Spec = Spec {
    name: "rubbos",
    mixes: ["browsing", "submission"],
    users: [PUBLISHED_USERS, 20_000],
    tables: &TABLES,
    interactions: &[
        visit("stories of the day", [32.92, 23.99], &[Newest { of: STORIES, rows: STORIES_OF_PAGE }]),
        visit("register", [0.0, 1.23], &[Page]),
        visit(
            "register user",
            [0.0, 1.72],
            &[Row { of: USERS, by: USERS_NAME, pick: Any }, ADD_USER, ADD_NAME, Commit],
        ),
        visit("browse", [6.01, 4.37], &[Page]),
        visit("browse categories", [2.23, 1.62], &[Whole { of: CATEGORIES }]),
        visit(
            "stories of a category",
            [4.05, 2.95],
            &[List { of: STORIES, by: STORIES_CATEGORY, pick: New, rows: STORIES_OF_PAGE }],
        ),
        visit(
            "older stories",
            [4.93, 3.59],
            &[List { of: OLD_STORIES, by: OLD_STORIES_DAY, pick: New, rows: STORIES_OF_PAGE }],
        ),
        visit(
            "view story",
            [22.13, 16.12],
            &[
                Row { of: STORIES, by: STORIES_KEY, pick: New },
                List { of: COMMENTS, by: COMMENTS_STORY, pick: Same, rows: SHOWN },
                List { of: USERS, by: USERS_KEY, pick: Same, rows: 5 },
            ],
        ),
        visit("post comment, form", [0.0, 7.22], &[Row { of: COMMENTS, by: COMMENTS_KEY, pick: Same }]),
        visit(
            "store comment",
            [0.0, 8.71],
            &[
                LOG_IN,
                Insert { of: COMMENTS, key: COMMENTS_KEY },
                Entry { of: COMMENTS_STORY },
                // Its parent has one more.
                Update { of: COMMENTS, pick: Same },
                Commit,
            ],
        ),
        visit(
            "view comment",
            [15.18, 11.05],
            &[
                Row { of: COMMENTS, by: COMMENTS_KEY, pick: New },
                List { of: COMMENTS, by: COMMENTS_STORY, pick: Same, rows: SHOWN },
                MADE_BY,
            ],
        ),
        visit("moderate comment", [0.0, 0.64], &[Row { of: COMMENTS, by: COMMENTS_KEY, pick: Same }]),
        visit(
            "store moderator log",
            [0.0, 0.76],
            &[
                LOG_IN,
                Update { of: COMMENTS, pick: Same },
                Update { of: USERS, pick: Same },
                Insert { of: MODERATOR_LOG, key: MODERATOR_LOG_KEY },
                Commit,
            ],
        ),
        visit("submit story, form", [0.0, 2.11], &[Whole { of: CATEGORIES }]),
        visit(
            "store story",
            [0.0, 2.54],
            &[LOG_IN, Insert { of: SUBMISSIONS, key: SUBMISSIONS_KEY }, Commit],
        ),
        visit("search, form", [5.33, 3.88], &[Page]),
        visit(
            "search in stories",
            [4.18, 3.05],
            &[
                Whole { of: STORIES_CATEGORY },
                List { of: OLD_STORIES, by: OLD_STORIES_KEY, pick: Any, rows: STORIES_OF_PAGE },
            ],
        ),
        visit(
            "search in comments",
            [2.23, 1.62],
            &[
                Row { of: OLD_COMMENTS, by: OLD_COMMENTS_KEY, pick: Any },
                List { of: OLD_COMMENTS, by: OLD_COMMENTS_STORY, pick: Any, rows: STORIES_OF_PAGE },
            ],
        ),
        visit("search in users", [0.81, 0.59], &[List { of: USERS, by: USERS_NAME, pick: Any, rows: 20 }]),
        visit("author, log in", [0.0, 0.34], &[Page]),
        visit("author", [0.0, 0.34], &[LOG_IN]),
        visit("review stories", [0.0, 0.29], &[Newest { of: SUBMISSIONS, rows: STORIES_OF_PAGE }]),
        visit(
            "accept story",
            [0.0, 0.76],
            &[
                Row { of: SUBMISSIONS, by: SUBMISSIONS_KEY, pick: Any },
                Insert { of: STORIES, key: STORIES_KEY },
                Entry { of: STORIES_CATEGORY },
                Update { of: SUBMISSIONS, pick: Any },
                Commit,
            ],
        ),
        visit(
            "reject story",
            [0.0, 0.51],
            &[
                Row { of: SUBMISSIONS, by: SUBMISSIONS_KEY, pick: Any },
                Update { of: SUBMISSIONS, pick: Any },
                Commit,
            ],
        ),
    ],
};

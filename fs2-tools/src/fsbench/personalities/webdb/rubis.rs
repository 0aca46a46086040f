//! RUBiS: an auction site after eBay.

use super::Pick::{New, Own, Same};
use super::Rows::{Fixed, PerMillion};
use super::Step::{Commit, Entry, Insert, List, Newest, Page, Row, Update, Whole};
use super::{
    ADD_NAME, ADD_USER, LOG_IN, MADE_BY, Sized, Spec, Step, USERS, USERS_KEY, USERS_NAME, index, table, visit,
};

const ITEMS: usize = 3;
const ITEMS_KEY: usize = 4;
const ITEMS_CATEGORY: usize = 5;
const ITEMS_SELLER: usize = 6;
const OLD_ITEMS: usize = 7;
const OLD_ITEMS_KEY: usize = 8;
const BIDS: usize = 9;
const BIDS_KEY: usize = 10;
const BIDS_ITEM: usize = 11;
const BIDS_USER: usize = 12;
const COMMENTS: usize = 13;
const COMMENTS_KEY: usize = 14;
const COMMENTS_TO: usize = 15;
const BUY_NOW: usize = 16;
const BUY_NOW_KEY: usize = 17;
const CATEGORIES: usize = 18;
const REGIONS: usize = 19;

/// Live items; ten bids are made for each, and each item sold has a comment.
const LIVE: u64 = 33_667;
const SOLD: u64 = 500_000;

const TABLES: [Sized; 20] = [
    table("users", PerMillion(1_000_000), 30),
    index("users_pkey", PerMillion(1_000_000)),
    index("users_nickname", PerMillion(1_000_000)),
    table("items", PerMillion(LIVE), 6),
    index("items_pkey", PerMillion(LIVE)),
    index("items_category", PerMillion(LIVE)),
    index("items_seller", PerMillion(LIVE)),
    table("old_items", PerMillion(SOLD), 6),
    index("old_items_pkey", PerMillion(SOLD)),
    table("bids", PerMillion(10 * LIVE), 130),
    index("bids_pkey", PerMillion(10 * LIVE)),
    index("bids_item", PerMillion(10 * LIVE)),
    index("bids_user", PerMillion(10 * LIVE)),
    table("comments", PerMillion(SOLD), 16),
    index("comments_pkey", PerMillion(SOLD)),
    index("comments_to", PerMillion(SOLD)),
    table("buy_now", PerMillion(LIVE / 10), 180),
    index("buy_now_pkey", PerMillion(LIVE / 10)),
    table("categories", Fixed(20), 140),
    table("regions", Fixed(62), 140),
];

/// What a form for an item shows.
const ITEM_AND_SELLER: &[Step] = &[LOG_IN, Row { of: ITEMS, by: ITEMS_KEY, pick: Same }, MADE_BY];

/// Items on a page of results.
const RESULTS: u64 = 20;

pub(super) const SPEC: Spec = Spec {
    name: "rubis",
    mixes: ["browsing", "bidding"],
    users: [1_000_000, 20_000],
    tables: &TABLES,
    interactions: &[
        visit("home", [0.05, 1.84], &[Page]),
        visit("register", [0.0, 1.04], &[Page]),
        visit(
            "register user",
            [0.0, 1.78],
            &[
                Whole { of: REGIONS },
                Row { of: USERS, by: USERS_NAME, pick: New },
                ADD_USER,
                ADD_NAME,
                Commit,
            ],
        ),
        visit("browse", [0.8, 7.19], &[Page]),
        visit("browse categories", [0.57, 5.0], &[Whole { of: CATEGORIES }]),
        visit(
            "search in category",
            [34.38, 15.54],
            &[List { of: ITEMS, by: ITEMS_CATEGORY, pick: New, rows: RESULTS }],
        ),
        visit("browse regions", [0.23, 2.06], &[Whole { of: REGIONS }]),
        visit("categories in region", [0.23, 2.03], &[Whole { of: REGIONS }, Whole { of: CATEGORIES }]),
        visit(
            "search in region",
            [13.96, 6.31],
            &[
                // Sellers are looked up for their region.
                List { of: ITEMS, by: ITEMS_CATEGORY, pick: New, rows: RESULTS },
                List { of: USERS, by: USERS_KEY, pick: Same, rows: RESULTS },
            ],
        ),
        visit(
            "view item",
            [35.45, 15.16],
            &[
                Row { of: ITEMS, by: ITEMS_KEY, pick: New },
                List { of: BIDS, by: BIDS_ITEM, pick: Same, rows: 10 },
                MADE_BY,
            ],
        ),
        visit(
            "view user info",
            [9.94, 3.86],
            &[
                MADE_BY,
                List { of: COMMENTS, by: COMMENTS_TO, pick: Same, rows: 5 },
                List { of: USERS, by: USERS_KEY, pick: Same, rows: 5 },
            ],
        ),
        visit(
            "view bid history",
            [4.39, 2.19],
            &[
                Row { of: ITEMS, by: ITEMS_KEY, pick: Same },
                List { of: BIDS, by: BIDS_ITEM, pick: Same, rows: 10 },
                List { of: USERS, by: USERS_KEY, pick: Same, rows: 10 },
            ],
        ),
        visit("buy now, log in", [0.0, 1.51], &[Page]),
        visit("buy now", [0.0, 1.49], ITEM_AND_SELLER),
        visit(
            "store buy now",
            [0.0, 2.52],
            &[Update { of: ITEMS, pick: Same }, Insert { of: BUY_NOW, key: BUY_NOW_KEY }, Commit],
        ),
        visit("put bid, log in", [0.0, 5.59], &[Page]),
        visit(
            "put bid",
            [0.0, 6.82],
            &[
                LOG_IN,
                Row { of: ITEMS, by: ITEMS_KEY, pick: Same },
                List { of: BIDS, by: BIDS_ITEM, pick: Same, rows: 10 },
                MADE_BY,
            ],
        ),
        visit(
            "store bid",
            [0.0, 8.62],
            &[
                Insert { of: BIDS, key: BIDS_KEY },
                Entry { of: BIDS_ITEM },
                Entry { of: BIDS_USER },
                // The highest bid and how many there are.
                Update { of: ITEMS, pick: Same },
                Commit,
            ],
        ),
        visit("put comment, log in", [0.0, 0.0], &[Page]),
        visit("put comment", [0.0, 0.64], ITEM_AND_SELLER),
        visit(
            "store comment",
            [0.0, 1.09],
            &[
                Insert { of: COMMENTS, key: COMMENTS_KEY },
                Entry { of: COMMENTS_TO },
                // Whom it is about is rated.
                Update { of: USERS, pick: Same },
                Commit,
            ],
        ),
        visit("sell", [0.0, 0.61], &[Page]),
        visit("category to sell in", [0.0, 0.59], &[Whole { of: CATEGORIES }]),
        visit("sell item, form", [0.0, 0.58], &[Page]),
        visit(
            "register item",
            [0.0, 0.99],
            &[
                Insert { of: ITEMS, key: ITEMS_KEY },
                Entry { of: ITEMS_CATEGORY },
                Entry { of: ITEMS_SELLER },
                Commit,
            ],
        ),
        visit("about me, log in", [0.0, 1.8], &[Page]),
        visit(
            "about me",
            [0.0, 3.15],
            &[
                LOG_IN,
                List { of: BIDS, by: BIDS_USER, pick: Own, rows: 5 },
                List { of: ITEMS, by: ITEMS_SELLER, pick: Own, rows: 3 },
                List { of: OLD_ITEMS, by: OLD_ITEMS_KEY, pick: Own, rows: 3 },
                Newest { of: BUY_NOW, rows: 10 },
                List { of: COMMENTS, by: COMMENTS_TO, pick: Own, rows: 5 },
            ],
        ),
    ],
};

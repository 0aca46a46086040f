//! The bookshop's tables.

use super::super::pages::{LEAF_ENTRIES, PAGE, Table as Spec};

/// A file of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Customer,
    CustomerKey,
    CustomerName,
    Address,
    AddressKey,
    Orders,
    OrdersKey,
    OrdersCustomer,
    OrderLine,
    OrderLineKey,
    Payments,
    Item,
    ItemKey,
    ItemSubject,
    Author,
    AuthorKey,
    Country,
    Cart,
    CartLine,
}

/// All of them: name, and rows in a page (entries in a leaf for an index).
const TABLES: [(Table, &str, u64); 19] = [
    (Table::Customer, "customer", 14),
    (Table::CustomerKey, "customer_pkey", LEAF_ENTRIES),
    (Table::CustomerName, "customer_uname", LEAF_ENTRIES),
    (Table::Address, "address", 60),
    (Table::AddressKey, "address_pkey", LEAF_ENTRIES),
    (Table::Orders, "orders", 52),
    (Table::OrdersKey, "orders_pkey", LEAF_ENTRIES),
    (Table::OrdersCustomer, "orders_c_id", LEAF_ENTRIES),
    (Table::OrderLine, "order_line", 60),
    (Table::OrderLineKey, "order_line_pkey", LEAF_ENTRIES),
    (Table::Payments, "cc_xacts", 60),
    (Table::Item, "item", 11),
    (Table::ItemKey, "item_pkey", LEAF_ENTRIES),
    (Table::ItemSubject, "item_subject", LEAF_ENTRIES),
    (Table::Author, "author", 22),
    (Table::AuthorKey, "author_pkey", LEAF_ENTRIES),
    (Table::Country, "country", 60),
    (Table::Cart, "shopping_cart", 200),
    (Table::CartLine, "shopping_cart_line", 150),
];

impl From<Table> for usize {
    fn from(table: Table) -> usize {
        table as usize
    }
}

/// How large the shop is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) customers: u64,
    pub(super) items: u64,
}

impl Shape {
    /// Rows at the beginning (TPC-W's population).
    fn rows(self, table: Table) -> u64 {
        let orders = self.customers * 9 / 10;
        match table {
            Table::Customer | Table::CustomerKey | Table::CustomerName => self.customers,
            Table::Address | Table::AddressKey => 2 * self.customers,
            Table::Orders | Table::OrdersKey | Table::OrdersCustomer | Table::Payments => orders,
            Table::OrderLine | Table::OrderLineKey => 3 * orders,
            Table::Item | Table::ItemKey | Table::ItemSubject => self.items,
            Table::Author | Table::AuthorKey => (self.items / 4).max(1),
            Table::Country => 92,
            Table::Cart => self.customers.min(10_000),
            Table::CartLine => 3 * self.customers.min(10_000),
        }
    }

    /// All tables and indexes, in the order of [`Table`].
    pub(super) fn tables(self) -> Vec<Spec> {
        TABLES.map(|(table, name, rows_of_page)| Spec { name, rows: self.rows(table), rows_of_page }).into()
    }
}

/// Bytes of a shop's tables and indexes.
pub(super) fn bytes(shape: Shape) -> u64 {
    shape.tables().iter().map(|t| t.rows.div_ceil(t.rows_of_page) * PAGE).sum()
}

//! polylock's MySQL and MariaDB backend

"""Identity: users and their keys, SASL on the broker's side, and how failed logins are slowed down."""

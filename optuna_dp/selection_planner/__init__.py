"""The price of private selections, for a range of laws and means, beside what attacks attain."""

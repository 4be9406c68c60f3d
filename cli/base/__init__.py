"""What commands share: connecting, printing, ending."""

module weir

go 1.26
